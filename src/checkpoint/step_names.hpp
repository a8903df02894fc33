#pragma once
// The names of a checkpoint's files, made and read back: step-<8 digits>[.<file>].h5 and .json. File 0 carries no
// number; a .json with one tells of that file alone, until the manifest of the whole is written.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

enum class StepFileKind { image, manifest };

struct StepFile {
  std::int64_t step = 0;
  int file = 0;
  StepFileKind kind = StepFileKind::image;
  friend bool operator==(const StepFile&, const StepFile&) = default;
};

std::string name_of(const StepFile& file);
// Nothing unless name_of() makes this very name.
std::optional<StepFile> parse_step_file(std::string_view name);

// Behind the name of a file of a damaged checkpoint.
inline constexpr std::string_view kBadEnding = ".bad";

}  // namespace tutti
