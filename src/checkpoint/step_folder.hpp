#pragma once
// What the files of a checkpoint are called, as tutti/checkpoint/checkpoint_store.hpp says, and which of them a folder
// holds.

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

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
std::optional<StepName> parse_step_name(std::string_view name);

struct StepFolder {
  std::vector<StepName> files;         // but for those marked bad
  std::vector<std::string> temporary;  // names under which a file of a checkpoint is, or was, being written
  bool any_bad = false;

  // Those that have the manifest of the whole, ascending.
  std::set<std::int64_t> complete() const;
};

// Nothing in a folder that does not exist. Throws an io error when it cannot be listed.
StepFolder list_steps(const std::string& folder);

}  // namespace tutti
