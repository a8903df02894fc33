#pragma once
// What the files of a step are called, in words of tutti/checkpoint/checkpoint_store.hpp, and back.

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

struct StepName {
  enum class Kind { image, manifest };

  std::int64_t step = 0;
  int file = 0;  // a manifest of a later file is there only until that of the whole is
  Kind kind = Kind::image;
  bool bad = false;

  std::string text() const {
    return fmt::format("step-{:08}{}.{}{}", step, file == 0 ? "" : fmt::format(".{}", file),
                       kind == Kind::image ? "h5" : "json", bad ? ".bad" : "");
  }
  friend bool operator==(const StepName&, const StepName&) = default;
};

inline std::string image_name(std::int64_t step, int file = 0) { return StepName{.step = step, .file = file}.text(); }
inline std::string manifest_name(std::int64_t step, int file = 0) {
  return StepName{.step = step, .file = file, .kind = StepName::Kind::manifest}.text();
}

// Nothing unless the name is exactly one that text() gives.
inline std::optional<StepName> parse_step_name(std::string_view name) {
  constexpr std::string_view kStem = "step-";
  if (!name.starts_with(kStem)) return std::nullopt;
  const char* end = name.data() + name.size();
  StepName parsed;
  auto rest = std::from_chars(name.data() + kStem.size(), end, parsed.step);
  if (rest.ec != std::errc() || rest.ptr == end) return std::nullopt;
  std::from_chars(rest.ptr + 1, end, parsed.file);
  parsed.bad = name.ends_with(".bad");
  if (name.find(".json") != std::string_view::npos) parsed.kind = StepName::Kind::manifest;
  if (parsed.step < 0 || parsed.file < 0 || parsed.text() != name) return std::nullopt;
  return parsed;
}

}  // namespace tutti
