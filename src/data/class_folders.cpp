#include "class_folders.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

bool has_class_folders(const fs::path& folder) {
  if (!fs::is_directory(folder)) return false;
  return std::ranges::any_of(list_folder(folder).folders,
                             [&](const std::string& name) { return !list_folder(folder / name).images.names.empty(); });
}

}  // namespace

std::optional<LoadedSet> list_class_folders(const fs::path& folder, std::vector<std::string>& notes) {
  LoadedSet set;
  ImageFiles files{folder, {}, {}};
  std::vector<std::string> others;
  std::string empty_class;
  for (const std::string& name : list_folder(folder).folders) {
    const FolderListing listing = list_folder(folder / name);
    if (listing.images.names.empty() && empty_class.empty()) empty_class = (folder / name).string();
    const auto label = static_cast<std::int32_t>(set.info.class_names.size());
    set.info.class_names.push_back(name);
    for (const std::string& image : listing.images.names) files.names.push_back(fmt::format("{}/{}", name, image));
    files.bytes.insert(files.bytes.end(), listing.images.bytes.begin(), listing.images.bytes.end());
    set.labels.resize(files.names.size(), label);
    for (const auto& left_out : {listing.folders, listing.others}) {
      for (const std::string& other : left_out) others.push_back(fmt::format("{}/{}", name, other));
    }
  }
  if (files.names.empty()) return std::nullopt;
  if (!empty_class.empty()) {
    throw Error(ErrorSource::input, fmt::format("the class folder '{}' holds no .jpg, .jpeg or .png files; remove it "
                                                "or put its images there",
                                                empty_class));
  }
  if (!others.empty()) {
    notes.push_back(fmt::format("{} entries of '{}' are no image files and left out: first {}", others.size(),
                                folder.string(), others.front()));
  }
  set.pixels = std::move(files);
  return set;
}

std::optional<fs::path> find_set_folder(const fs::path& folder, bool is_test) {
  using Names = std::vector<std::string_view>;
  const Names names = is_test ? Names{"test", "valid", "val"} : Names{"train"};
  for (const std::string_view name : names) {
    if (has_class_folders(folder / name)) return folder / name;
  }
  return std::nullopt;
}

}  // namespace tutti
