#include "step_folder.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <system_error>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Between the name of a file and that of its writer.
constexpr std::string_view kTemporary = ".tmp.";

void add(StepFolder& listing, const std::string& name) {
  const auto file = parse_step_name(name);
  if (file && file->bad) {
    listing.any_bad = true;
  } else if (file) {
    listing.files.push_back(*file);
  } else if (parse_step_name(std::string_view(name).substr(0, name.find(kTemporary)))) {
    listing.temporary.push_back(name);
  }
}

}  // namespace

std::optional<StepName> parse_step_name(std::string_view name) {
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

std::set<std::int64_t> StepFolder::complete() const {
  std::set<std::int64_t> steps;
  for (const StepName& file : files) {
    if (file.kind == StepName::Kind::manifest && file.file == 0) steps.insert(file.step);
  }
  return steps;
}

StepFolder list_steps(const std::string& folder) {
  StepFolder listing;
  std::error_code error;
  fs::directory_iterator entry;
  do {
    entry = fs::directory_iterator(folder, error);
  } while (error == std::errc::interrupted);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    add(listing, entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(ErrorSource::io,
                fmt::format("cannot list '{}': {}; check the path and its permissions", folder, error.message()));
  }
  return listing;
}

}  // namespace tutti
