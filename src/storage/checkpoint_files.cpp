#include "checkpoint_files.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/atomic_file.hpp"

#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Empty unless CheckpointFileName::text() can produce this name.
std::optional<CheckpointFileName> parse_file_name(std::string_view name) {
  constexpr std::string_view kStem = "step-";
  if (!name.starts_with(kStem)) return std::nullopt;
  const char* end = name.data() + name.size();
  CheckpointFileName parsed;
  auto rest = std::from_chars(name.data() + kStem.size(), end, parsed.step);
  if (rest.ec != std::errc() || rest.ptr == end) return std::nullopt;
  std::from_chars(rest.ptr + 1, end, parsed.file);
  parsed.bad = name.ends_with(".bad");
  parsed.is_manifest = name.find(".json") != std::string_view::npos;
  if (parsed.step < 0 || parsed.file < 0 || parsed.text() != name) return std::nullopt;
  return parsed;
}

}  // namespace

std::set<std::int64_t> CheckpointListing::complete() const {
  std::set<std::int64_t> steps;
  for (const CheckpointFileName& file : files) {
    if (file.is_manifest && file.file == 0) steps.insert(file.step);
  }
  return steps;
}

CheckpointListing list_checkpoints(const std::string& folder) {
  CheckpointListing listing;
  std::error_code error;
  fs::directory_iterator entry;
  do {
    entry = fs::directory_iterator(folder, error);
  } while (error == std::errc::interrupted);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto file = parse_file_name(name);
    if (file && file->bad) {
      listing.any_bad = true;
    } else if (file) {
      listing.files.push_back(*file);
    } else if (parse_file_name(std::string_view(name).substr(0, name.find(kTemporaryMark)))) {
      listing.temporary.push_back(name);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(ErrorSource::io,
                fmt::format("cannot list '{}': {}; check the path and its permissions", folder, error.message()));
  }
  return listing;
}

std::string manifest_path(const std::string& checkpoint_path) {
  return fs::path(checkpoint_path).replace_extension(".json").string();
}

}  // namespace tutti
