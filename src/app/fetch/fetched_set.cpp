#include "fetched_set.hpp"

#include "tutti/base/error.hpp"
#include "tutti/data/unpack.hpp"

#include "fetched_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string place_of(const PublishedFile& file, const std::string& folder) {
  return fmt::format("{}/{}", folder, file.name);
}

// Files of the user's are not written over.
bool is_there(const PublishedFile& file, const std::string& folder) {
  const FileState state = state_of(place_of(file, folder), file);
  if (state == FileState::other) {
    throw Error(ErrorSource::input, fmt::format("'{}' is there, but is not the published file of {} bytes{}: remove or "
                                                "rename it, or choose another --to",
                                                place_of(file, folder), file.bytes,
                                                file.sha256.empty() ? "" : " with the SHA-256 " + file.sha256));
  }
  return state == FileState::right;
}

// Looks at every one, so that a file of the user's is found before anything is fetched.
bool are_there(const std::vector<PublishedFile>& files, const std::string& folder) {
  return std::ranges::count_if(files, [&](const PublishedFile& file) { return is_there(file, folder); }) ==
         std::ssize(files);
}

// Of the folders on the way, those that were not there go again unless something has come into them.
class MadeFolders {
 public:
  explicit MadeFolders(const std::string& folder) {
    std::error_code unknown;
    for (fs::path path = (fs::absolute(folder) / "").lexically_normal().parent_path(); !fs::exists(path, unknown);
         path = path.parent_path()) {
      made_.push_back(path);
    }
  }
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;
  ~MadeFolders() {
    std::error_code failure;
    for (const fs::path& path : made_) {
      if (!fs::is_directory(path, failure) || !fs::is_empty(path, failure) || failure || !fs::remove(path, failure))
        return;
    }
  }

 private:
  std::vector<fs::path> made_;  // the innermost first
};

void unpack_set(const PublishedSet& set, const std::string& folder, const SetWatch& watch) {
  const std::string archive = place_of(set.downloads.front(), folder);
  watch.note(fmt::format("unpacking '{}'", archive));
  std::vector<PackedFile> packed;
  for (const PublishedFile& file : set.files) {
    packed.push_back({fmt::format("{}/{}", set.packed_in, file.name), file.bytes});
  }
  unpack(archive, packed, folder);
  if (!are_there(set.files, folder)) throw Error(ErrorSource::internal, fmt::format("'{}' is not whole", folder));
  std::error_code ignored;  // what it takes of the disk harms nobody
  fs::remove(archive, ignored);
}

}  // namespace

void make_folder(const std::string& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) {
    throw Error(ErrorSource::save,
                fmt::format("cannot make the folder '{}': {}; choose another --to", folder, failure.message()));
  }
}

std::string placing_words(const PublishedSet& set, const std::string& folder) {
  std::string text = fmt::format("Where there is no network, put into '{}' by other means, and call this again:\n",
                                 fs::absolute(folder).lexically_normal().string());
  for (const PublishedFile& file : set.downloads) {
    text += fmt::format("  {}, {} bytes, SHA-256 {}\n", file.name, file.bytes, file.sha256);
  }
  text += "which is published at";
  for (const std::string& place : set.places) text += fmt::format("\n  {}", place);
  return text;
}

void fetch_set(const PublishedSet& set, const std::string& folder, const SetWatch& watch) {
  const MadeFolders made(folder);
  make_folder(folder);
  if (are_there(set.files, folder)) {
    watch.note(fmt::format("all files of {} are in '{}' already, and right", set.name, folder));
    return;
  }
  for (const PublishedFile& file : set.downloads) {
    if (is_there(file, folder)) continue;
    const FetchWatch file_watch{.progress = [&](std::int64_t bytes) { watch.progress(file, bytes); },
                                .note = watch.note};
    try {
      const std::string place = fetch_file(file, set.places, folder, file_watch);
      watch.note(fmt::format("{} from {}, SHA-256 as published", file.name, place));
    } catch (const Error& error) {
      if (error.source() != ErrorSource::io) throw;
      throw Error(ErrorSource::io, fmt::format("{}\n{}", error.what(), placing_words(set, folder)));
    }
  }
  if (!set.packed_in.empty()) unpack_set(set, folder, watch);
}

}  // namespace tutti
