#include "step_folder.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Between the name of a file and that of its writer.
constexpr std::string_view kTemporary = ".tmp.";

void add(StepFolder& listing, const std::string& name) {
  if (const auto file = parse_step_file(name)) {
    listing.files.push_back(*file);
  } else if (name.ends_with(kBadEnding)) {
    listing.any_bad |= parse_step_file(std::string_view(name).substr(0, name.size() - kBadEnding.size())).has_value();
  } else if (parse_step_file(std::string_view(name).substr(0, name.find(kTemporary)))) {
    listing.temporary.push_back(name);
  }
}

}  // namespace

std::set<std::int64_t> StepFolder::complete() const {
  std::set<std::int64_t> steps;
  for (const StepFile& file : files) {
    if (file.kind == StepFileKind::manifest && file.file == 0) steps.insert(file.step);
  }
  return steps;
}

StepFolder list_steps(const std::string& folder) {
  StepFolder listing;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    add(listing, entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(ErrorSource::io,
                fmt::format("cannot list '{}': {}; check the path and its permissions", folder, error.message()));
  }
  return listing;
}

}  // namespace tutti
