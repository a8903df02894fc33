#include "step_names.hpp"

#include <fmt/format.h>

#include <charconv>

namespace tutti {
namespace {

constexpr std::string_view kStem = "step-";

const char* ending_of(StepFileKind kind) { return kind == StepFileKind::image ? ".h5" : ".json"; }

// Takes a number off the front.
template <class T>
T take_number(std::string_view& text) {
  T number = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

}  // namespace

std::string name_of(const StepFile& file) {
  const std::string number = file.file == 0 ? "" : fmt::format(".{}", file.file);
  return fmt::format("{}{:08}{}{}", kStem, file.step, number, ending_of(file.kind));
}

std::optional<StepFile> parse_step_file(std::string_view name) {
  if (!name.starts_with(kStem)) return std::nullopt;
  std::string_view rest = name.substr(kStem.size());
  StepFile file{.step = take_number<std::int64_t>(rest)};
  if (rest.size() > 1 && rest[1] >= '0' && rest[1] <= '9') {
    rest.remove_prefix(1);
    file.file = take_number<int>(rest);
  }
  if (rest == ".json") file.kind = StepFileKind::manifest;
  if (file.step < 0 || file.file < 0 || name != name_of(file)) return std::nullopt;
  return file;
}

}  // namespace tutti
