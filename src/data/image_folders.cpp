#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "csv_reader.hpp"
#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Adds the images of files.folder / inside, which `listing` lists, and of the folders below it. Other files go to
// `others`, as do links to folders, which may be circular.
void add_listed(ImageFiles& files, const fs::path& inside, const FolderListing& listing,
                std::vector<std::string>& others) {
  for (const auto& [name, bytes, modified] : listing.images) {
    files.files.push_back({(inside / name).string(), bytes, modified});
  }
  for (const std::string& name : listing.others) others.push_back((inside / name).string());
  for (const std::string& name : listing.folders) {
    const fs::path folder = files.folder / inside / name;
    if (fs::is_symlink(folder)) {
      others.push_back((inside / name).string());
    } else {
      add_listed(files, inside / name, list_folder(folder), others);
    }
  }
}

// The numbers of a folder's images by name, and by name without extension, which is ambiguous if there are more of it.
std::unordered_map<std::string, std::vector<std::size_t>> index_by_name(const std::vector<ImageFiles::File>& images) {
  std::unordered_map<std::string, std::vector<std::size_t>> index;
  for (std::size_t i = 0; i < images.size(); ++i) index[fs::path(images[i].name).stem().string()].push_back(i);
  for (std::size_t i = 0; i < images.size(); ++i) index[images[i].name] = {i};
  return index;
}

LoadedSet labelled_set(ImageFiles files, const std::vector<std::string>& labels) {
  LoadedSet set;
  set.info.class_names = sorted_classes(labels);
  std::map<std::string, std::int32_t> label_of;
  for (const std::string& name : set.info.class_names) {
    label_of.emplace(name, static_cast<std::int32_t>(label_of.size()));
  }
  for (const std::string& label : labels) set.labels.push_back(label_of.at(label));
  set.pixels = std::move(files);
  return set;
}

std::optional<std::string> find_table(const fs::path& folder, const std::vector<std::string>& others) {
  std::vector<std::string> tables;
  for (const std::string& name : others) {
    if (name == "labels.csv") return (folder / name).string();
    if (name.ends_with(".csv") || name.ends_with(".CSV")) tables.push_back(name);
  }
  if (tables.empty()) return std::nullopt;
  if (tables.size() > 1) {
    throw Error(ErrorSource::input, fmt::format("'{}' contains {} tables, among them {} and {}; rename the one with "
                                                "the labels to labels.csv",
                                                folder.string(), tables.size(), tables[0], tables[1]));
  }
  return (folder / tables[0]).string();
}

// Why a row that does not have two fields is invalid.
std::string fault_of(const std::vector<std::string>& fields) {
  const std::size_t wrong = fields.size() == 1 ? fields.front().find_first_of(";\t") : std::string::npos;
  if (wrong != std::string::npos) {
    const char* const separator = fields.front()[wrong] == ';' ? "semicolons" : "tabs";
    return fmt::format("{} separate the fields: put a comma between an image and its label", separator);
  }
  return fmt::format("{} field{} instead of an image and its label, for example cat.jpg,cat", fields.size(),
                     fields.size() == 1 ? "" : "s");
}

LoadedSet read_table(const std::string& path, const fs::path& folder, const std::vector<ImageFiles::File>& images) {
  const auto index = index_by_name(images);
  const std::string text = read_file_text(path);
  CsvReader reader(text, path);
  ImageFiles files{folder, {}};
  std::vector<std::string> labels;
  std::unordered_map<std::size_t, std::int64_t> line_of;
  bool is_first = true;
  for (CsvRow row = reader.next(); !row.fields.empty(); row = reader.next()) {
    if (std::exchange(is_first, false) && is_header(row) && !index.contains(row.fields.front())) continue;
    if (row.fields.size() != 2) refuse_line(path, row.line, fault_of(row.fields));
    const auto found = index.find(row.fields[0]);
    if (found == index.end())
      refuse_line(path, row.line, fmt::format("there is no image '{}' in the folder", row.fields[0]));
    if (found->second.size() > 1)
      refuse_line(path, row.line, fmt::format("'{}' is the name of more than one image", row.fields[0]));
    if (row.fields[1].empty()) refuse_line(path, row.line, fmt::format("'{}' has no label", row.fields[0]));
    const std::size_t image = found->second.front();
    const auto [entry, is_new] = line_of.emplace(image, row.line);
    if (!is_new)
      refuse_line(path, row.line, fmt::format("'{}' has a label already, in line {}", row.fields[0], entry->second));
    files.files.push_back(images[image]);
    labels.push_back(std::move(row.fields[1]));
  }
  if (labels.empty()) refuse_line(path, 1, "the table lists no images");
  return labelled_set(std::move(files), labels);
}

std::string empty_class_text(const fs::path& folder, const FolderListing& listing, int depth) {
  const auto& inside = listing.folders;
  return fmt::format("the class folder '{}' contains no {} files{}; remove it or put its images there", folder.string(),
                     kImageExtensions,
                     inside.empty() ? ""
                                    : fmt::format(", and folders inside it, as '{}', are not read; if they are the "
                                                  "classes, give --class-depth {}",
                                                  inside.front(), depth + 1));
}

// The folders that are this many levels below, relative to `folder`, sorted level by level.
std::vector<fs::path> folders_below(const fs::path& folder, const fs::path& inside, int levels) {
  if (levels == 0) return {inside};
  std::vector<fs::path> found;
  for (const std::string& name : list_folder(folder / inside).folders) {
    std::ranges::move(folders_below(folder, inside / name, levels - 1), std::back_inserter(found));
  }
  return found;
}

}  // namespace

bool has_class_folders(const fs::path& folder, int depth) {
  return fs::is_directory(folder) && std::ranges::any_of(folders_below(folder, {}, depth), [&](const fs::path& inside) {
           return !list_folder(folder / inside).images.empty();
         });
}

std::optional<LoadedSet> list_class_folders(const fs::path& folder, int depth, std::vector<std::string>& notes) {
  LoadedSet set;
  ImageFiles files{folder, {}};
  std::vector<std::string> others;
  for (const fs::path& name : folders_below(folder, {}, depth)) {
    const FolderListing listing = list_folder(folder / name);
    const auto label = static_cast<std::int32_t>(set.info.class_names.size());
    set.info.class_names.push_back(name.string());
    if (listing.images.empty()) {  // folders alone may be the classes themselves
      set.empty_classes.push_back(empty_class_text(folder / name, listing, depth));
    } else {
      add_listed(files, name, listing, others);
    }
    set.labels.resize(files.files.size(), label);
  }
  if (files.files.empty()) return std::nullopt;
  if (!others.empty()) {
    notes.push_back(fmt::format("{} entries of '{}' are not image files and are skipped: first {}", others.size(),
                                folder.string(), others.front()));
  }
  set.pixels = std::move(files);
  return set;
}

LoadedPair list_images(const std::vector<std::string>& paths) {
  ImageFiles files;
  std::vector<std::string> others;
  for (const fs::path path : paths) {
    if (!fs::exists(path)) throw Error(ErrorSource::io, fmt::format("there is no image '{}'", path.string()));
    if (!fs::is_directory(path)) {
      files.files.push_back(file_at(path, path.string()));
      continue;
    }
    const std::size_t before = files.files.size();
    add_listed(files, path, list_folder(path), others);
    if (files.files.size() > before) continue;
    throw Error(ErrorSource::input, fmt::format("'{}' contains no {} files", path.string(), kImageExtensions));
  }
  LoadedPair pair;
  if (!others.empty()) {
    pair.notes.push_back(
        fmt::format("{} entries are not image files and are skipped: first {}", others.size(), others.front()));
  }
  LoadedSet& set = pair.train;
  set.info.name = "the files given";
  set.info.classes = 1;
  set.info.labelled = false;
  set.labels.resize(files.files.size(), 0);
  set.pixels = std::move(files);
  return pair;
}

std::optional<LoadedSet> list_labelled_folder(const fs::path& folder, std::vector<std::string>& notes) {
  const FolderListing listing = list_folder(folder);
  if (listing.images.empty()) return std::nullopt;
  const auto path = find_table(folder, listing.others);
  if (!path) return std::nullopt;
  LoadedSet set = read_table(*path, folder, listing.images);
  if (set.labels.size() < listing.images.size()) {
    notes.push_back(fmt::format("{} images of '{}' have no label in {} and are skipped",
                                listing.images.size() - set.labels.size(), folder.string(), *path));
  }
  return set;
}

std::vector<std::string> sorted_classes(const std::vector<std::string>& labels) {
  const std::set<std::string> distinct(labels.begin(), labels.end());
  std::vector<std::string> names(distinct.begin(), distinct.end());
  const auto number_in = [](const std::string& name) { return parse_number<std::int64_t>(name); };
  if (std::ranges::all_of(names, [&](const std::string& name) { return number_in(name).has_value(); })) {
    std::ranges::stable_sort(names, {}, [&](const std::string& name) { return *number_in(name); });
  }
  return names;
}

bool is_image_list(const fs::path& path) {
  constexpr std::array<std::string_view, 4> kEndings{".txt", ".csv", ".tsv", ".lst"};
  const std::string ending = in_lower_case(path.extension().string());
  return std::ranges::find(kEndings, ending) != kEndings.end() && fs::is_regular_file(path);
}

LoadedSet list_image_list(const fs::path& path) {
  const std::string text = read_file_text(path.string());
  const std::string_view first_line = std::string_view(text).substr(0, text.find('\n'));
  const char separator = first_line.find('\t') != std::string_view::npos  ? '\t'
                         : first_line.find(',') != std::string_view::npos ? ','
                                                                          : ' ';
  const std::string name = path.string();
  CsvReader reader(text, name, separator);
  ImageFiles files{path.parent_path(), {}};
  std::vector<std::string> labels;
  bool is_first = true;
  for (CsvRow row = reader.next(); !row.fields.empty(); row = reader.next()) {
    if (std::exchange(is_first, false) && is_header(row) && !fs::exists(files.folder / row.fields.front())) continue;
    if (row.fields.size() != 2) refuse_line(name, row.line, fault_of(row.fields));
    if (row.fields[1].empty()) refuse_line(name, row.line, fmt::format("'{}' has no label", row.fields[0]));
    try {
      files.files.push_back(file_at(files.folder / row.fields[0], row.fields[0]));
    } catch (const fs::filesystem_error& failure) {
      refuse_line(name, row.line, fmt::format("'{}': {}", row.fields[0], failure.code().message()));
    }
    labels.push_back(std::move(row.fields[1]));
  }
  if (labels.empty()) refuse_line(name, 1, "the list has no images");
  LoadedSet set = labelled_set(std::move(files), labels);
  set.info.name = path.stem().string();
  return set;
}

}  // namespace tutti
