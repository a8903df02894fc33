#include "listed_images.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

class ImageList {
 public:
  void add(const fs::path& place) {
    if (!fs::exists(place)) throw Error(ErrorSource::io, fmt::format("there is no image '{}'", place.string()));
    if (!fs::is_directory(place)) return add_file(place, static_cast<std::int64_t>(fs::file_size(place)));
    const std::size_t before = files_.names.size();
    add_folder(place);
    if (files_.names.size() > before) return;
    throw Error(ErrorSource::input, fmt::format("'{}' holds no .jpg, .jpeg or .png files", place.string()));
  }

  LoadedPair finish() {
    LoadedPair pair;
    if (!others_.empty()) {
      pair.notes.push_back(
          fmt::format("{} entries are no image files and left out: first {}", others_.size(), others_.front()));
    }
    LoadedSet& set = pair.train;
    set.info.name = "the files given";
    set.info.classes = 1;
    set.info.labelled = false;
    set.labels.resize(files_.names.size(), 0);
    set.pixels = std::move(files_);
    return pair;
  }

 private:
  void add_file(const fs::path& path, std::int64_t bytes) {
    files_.names.push_back(path.string());
    files_.bytes.push_back(bytes);
  }
  void add_folder(const fs::path& folder) {
    const FolderListing listing = list_folder(folder);
    for (std::size_t i = 0; i < listing.images.names.size(); ++i) {
      add_file(folder / listing.images.names[i], listing.images.bytes[i]);
    }
    for (const std::string& name : listing.others) others_.push_back((folder / name).string());
    for (const std::string& name : listing.folders) {
      if (fs::is_symlink(folder / name)) {
        others_.push_back((folder / name).string());  // it may lead back here
      } else {
        add_folder(folder / name);
      }
    }
  }

  ImageFiles files_;
  std::vector<std::string> others_;
};

}  // namespace

LoadedPair list_images(const std::vector<std::string>& words) {
  ImageList list;
  for (const std::string& word : words) list.add(word);
  return list.finish();
}

}  // namespace tutti
