#include "tutti/data/open_data.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"

#include "sources.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string name_of_folder(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

// train/ and test/ are splits, not classes: images directly in train/ have no class.
void refuse_sets_as_classes(const fs::path& folder) {
  constexpr std::array<std::string_view, 4> kSets{"train", "test", "valid", "val"};
  if (!fs::is_directory(folder / "train") || list_folder(folder / "train").images.empty()) return;
  const FolderListing listing = list_folder(folder);
  const auto is_set = [&](const std::string& name) { return std::ranges::find(kSets, name) != kSets.end(); };
  if (!listing.images.empty() || !std::ranges::all_of(listing.folders, is_set)) return;
  throw Error(ErrorSource::input,
              fmt::format("'{}' contains images but no class folders: move each class into a folder of its name",
                          (folder / "train").string()));
}

// The class folders of the first of these sub-folders that contains some. Notes another one that is not read.
std::optional<LoadedSet> list_set_folder(const fs::path& folder, std::initializer_list<std::string_view> names,
                                         int depth, std::vector<std::string>& notes) {
  const auto has_classes = [&](std::string_view name) { return has_class_folders(folder / name, depth); };
  const auto* const found = std::ranges::find_if(names, has_classes);
  if (found == names.end()) return std::nullopt;
  if (const auto* const other = std::find_if(found + 1, names.end(), has_classes); other != names.end()) {
    const std::string unread = (folder / *other).string();
    notes.push_back(fmt::format("the test set is '{}', and '{}' is not read: --test-data {} uses that instead",
                                (folder / *found).string(), unread, unread));
  }
  return list_class_folders(folder / *found, depth, notes);
}

std::optional<LoadedSet> load_train(const fs::path& folder, int depth, GrowingMemory& block,
                                    std::vector<std::string>& notes) {
  auto set = read_binary_set(folder, {"train"}, "data_batch", block);
  if (!set) set = list_set_folder(folder, {"train"}, depth, notes);
  if (!set) set = list_labelled_folder(folder, notes);
  if (!set) refuse_sets_as_classes(folder);
  if (!set) set = list_class_folders(folder, depth, notes);
  if (set) set->info.name = name_of_folder(folder);
  return set;
}

std::optional<LoadedSet> load_test(const fs::path& folder, int depth, GrowingMemory& block,
                                   std::vector<std::string>& notes) {
  auto set = read_binary_set(folder, {"t10k", "test"}, "test_batch", block);
  if (!set) set = list_set_folder(folder, {"test", "valid", "val"}, depth, notes);
  if (set) set->info.name = name_of_folder(folder) + " (test)";
  return set;
}

// Whether the command data fetch (tools/companions/trainer-data-fetch) can download a set of this name.
bool can_be_fetched(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames{"mnist", "fashion-mnist", "cifar10", "cifar10-tiny"};
  return std::ranges::find(kNames, name) != kNames.end();
}

// Resolves an option's value: a path, or for a bare name the first of the usual locations that exists.
fs::path find_data_path(const std::string& where, bool from_checkpoint) {
  if (where.empty()) throw Error(ErrorSource::usage, "the name of the data set is empty; see --data");
  std::vector<std::string> paths{where};
  if (where.find('/') == std::string::npos) {
    paths = {"./" + where, "./data/" + where};
    if (const char* root = std::getenv("TUTTI_DATA")) paths.push_back((fs::path(root) / where).string());
  }
  const auto found = std::ranges::find_if(paths, [](const std::string& path) { return fs::exists(path); });
  if (where.ends_with(".tar")) {
    throw Error(ErrorSource::input, fmt::format("'{}' is a tar archive: {} data convert makes a data set of it, with "
                                                "--encoded",
                                                where, program_call()));
  }
  if (found != paths.end()) return *found;
  const bool lacks_root = paths.size() == 2;
  throw Error(
      ErrorSource::io,
      fmt::format("there is no data set '{}'; looked for {}{}. {}Built-in sets: glyphs, {}NxCxHxW:classes{}", where,
                  fmt::join(paths, ", "), lacks_root ? " (TUTTI_DATA is not set)" : "",
                  can_be_fetched(where) ? fmt::format("{} data fetch {} downloads it. ", program_call(), where) : "",
                  kSyntheticPrefix, from_checkpoint ? ". The checkpoint names that path: --data gives another" : ""));
}

// Checkpoints and records are JSON, which must be UTF-8.
void require_utf8_class_names(const fs::path& path, const std::vector<std::string>& class_names) {
  const auto found = std::ranges::find_if_not(class_names, is_utf8);
  if (found == class_names.end()) return;
  throw Error(ErrorSource::input,
              fmt::format("'{}' has the class '{}', and that name is not UTF-8: rename its folder, or save the table "
                          "that names it as UTF-8",
                          path.string(), printable(*found)));
}

[[noreturn]] void refuse(const std::string& reason) { throw Error(ErrorSource::input, reason); }

// A folder below this one that has class folders with images, or has them in train/; empty: there is none.
fs::path inner_set(const fs::path& folder, int levels) {
  for (const std::string& name : list_folder(folder).folders) {
    const fs::path inner = folder / name;
    if (has_class_folders(inner, 1) || has_class_folders(inner / "train", 1)) return inner;
    if (levels == 1 || fs::is_symlink(inner)) continue;
    if (fs::path found = inner_set(inner, levels - 1); !found.empty()) return found;
  }
  return {};
}

// The `data fetch` command that downloads the data set that belongs in this folder; empty: there is none.
std::string fetch_hint(const fs::path& folder) {
  const fs::path whole = (fs::absolute(folder) / "").lexically_normal().parent_path();
  const std::string name = whole.filename().string();
  if (!can_be_fetched(name)) return {};
  const bool is_usual = whole.parent_path() == fs::absolute("data");
  const std::string to = is_usual ? "" : fmt::format(" --to {}", whole.parent_path().string());
  return fmt::format("{} data fetch {}{} downloads it", program_call(), name, to);
}

// Reports what is in a folder in which no data set was found, and how to fix it.
[[noreturn]] void refuse_folder(const fs::path& folder) {
  const FolderListing listing = list_folder(folder);
  const std::size_t images = listing.images.size();
  const std::string hint = fetch_hint(folder);
  if (images == 0 && listing.folders.empty() && listing.others.empty()) {
    refuse(fmt::format("'{}' is empty: {}", folder.string(),
                       hint.empty() ? "put one folder of images per class there" : hint));
  }
  if (images > 0 && listing.folders.empty()) {
    refuse(
        fmt::format("'{}' contains {} image file{} but no class folders: move each class into a folder of its name, or "
                    "add labels.csv",
                    folder.string(), images, images == 1 ? "" : "s"));
  }
  constexpr int kMaxLevels = 3;
  if (const fs::path inner = inner_set(folder, kMaxLevels); !inner.empty()) {
    const fs::path between = inner.lexically_relative(folder);
    refuse(
        fmt::format("'{}' contains no images that can be read, but '{}' contains class folders: give that folder; or, "
                    "if all folders like those in it are the classes, --class-depth {}; or, if its name is that of a "
                    "class, move the images below it into it",
                    folder.string(), inner.string(), std::distance(between.begin(), between.end()) + 1));
  }
  refuse(
      fmt::format("'{}' contains no images that can be read{}: neither idx files (train-images-idx3-ubyte and "
                  "train-labels-idx1-ubyte) nor CIFAR batches (data_batch_*.bin), raw or .gz, nor one folder "
                  "per class, here or in train/, with {} files in it, nor such files with a table labels.csv",
                  folder.string(), hint.empty() ? "" : fmt::format(" ({})", hint), kImageExtensions));
}

// The training set, and its test set unless that is held out or given separately.
LoadedPair load_sets(const DataRequest& request, GrowingMemory& block) {
  const std::string& where = request.train;
  if (where == "glyphs") return draw_glyphs(block);
  if (where.starts_with(kSyntheticPrefix)) return draw_synthetic(where, block);
  const fs::path path = find_data_path(where, request.from_checkpoint);
  LoadedPair pair;
  if (is_image_list(path)) {
    pair.train = list_image_list(path);
    return pair;
  }
  if (!fs::is_directory(path)) return read_data_file(path.string(), request, DataFileSets::both, block);
  auto train = load_train(path, request.class_depth, block, pair.notes);
  if (!train && request.allow_unlabelled && !list_folder(path).images.empty()) {
    pair = list_images({path.string()});
    pair.train.info.name = name_of_folder(path);
    return pair;
  }
  if (!train) refuse_folder(path);
  pair.train = std::move(*train);
  if (!request.allow_non_utf8_names) require_utf8_class_names(path, pair.train.info.class_names);
  if (request.test.empty() && request.validation_ratio == 0)
    pair.test = load_test(path, request.class_depth, block, pair.notes);
  return pair;
}

// The files in request.test may be named like a test set or like a training set.
LoadedSet load_test_set(const DataRequest& request, GrowingMemory& block, std::vector<std::string>& notes) {
  const fs::path path = find_data_path(request.test, false);
  if (is_image_list(path)) return list_image_list(path);
  if (!fs::is_directory(path)) {
    LoadedPair pair = read_data_file(path.string(), request, DataFileSets::test_if_any, block);
    notes.insert(notes.end(), pair.notes.begin(), pair.notes.end());
    return pair.test ? std::move(*pair.test) : std::move(pair.train);
  }
  if (auto set = load_test(path, request.class_depth, block, notes)) return std::move(*set);
  if (auto set = load_train(path, request.class_depth, block, notes)) return std::move(*set);
  refuse_folder(path);
}

// Leaves out these files, given by index and problem, unless all are bad.
void leave_out(LoadedSet& set, std::span<std::pair<std::int64_t, std::string>> bad, std::vector<std::string>& notes) {
  const std::size_t all = set.labels.size();
  const std::string& first = bad.front().second;
  if (bad.size() == all) {
    throw Error(ErrorSource::input, fmt::format("all {} images of {} are bad: first {}", all, set.info.name, first));
  }
  notes.push_back(fmt::format("{} of {} images of {} skipped: first {}", bad.size(), all, set.info.name, first));
  std::vector<std::int64_t> indices;
  for (auto& [file, problem] : bad) {
    set.info.skipped.push_back({.next_sample = file - std::ssize(indices),
                                .name = path_of(set, static_cast<std::size_t>(file)),
                                .problem = std::move(problem)});
    indices.push_back(file);
  }
  extract_samples(set, indices);
}

bool has_image_files(const LoadedSet& set) {
  return std::holds_alternative<ImageFiles>(set.pixels) || std::holds_alternative<EncodedFiles>(set.pixels);
}

FileListing listing_of(const LoadedSet& set) {
  FileListing listing;
  if (const auto* files = std::get_if<ImageFiles>(&set.pixels)) {
    for (const auto& [name, bytes, modified] : files->files) {
      listing.bytes += bytes;
      listing.modified += mix64(hash64(name) + static_cast<std::uint64_t>(modified));
    }
  } else {
    const auto& encoded = std::get<EncodedFiles>(set.pixels);
    for (const std::int32_t bytes : encoded.bytes) listing.bytes += bytes;
    for (const std::int32_t checksum : encoded.checksums) {
      listing.modified += mix64(static_cast<std::uint32_t>(checksum));
    }
  }
  return listing;
}

// Determines the shape of a set of image files, and leaves out bad ones if requested.
void examine_files(LoadedSet& set, const DataRequest& request, std::vector<std::string>& notes) {
  if (!has_image_files(set)) return;
  auto* files = std::get_if<ImageFiles>(&set.pixels);
  if (files != nullptr) files->applies_exif = request.applies_exif;
  if (request.verification == Verification::none) {
    if (files != nullptr) set.info.image = Shape{kColorChannels, 0, 0};
    return;
  }
  const bool finds_bad = request.skip_bad_images || request.lists_problems;
  ImageFindings findings =
      files == nullptr
          ? examine_encoded(set, request, finds_bad)
          : examine(*files, request.skip_bad_images ? Verification::whole : request.verification, finds_bad);
  if (files != nullptr) set.info.image = findings.image;
  if (!findings.bad.empty()) leave_out(set, findings.bad, notes);
  // Predictions are never resumed, so they need no digests of the files' bytes.
  if (request.images.empty() && !request.allow_untrained_labels) {
    set.info.contents = contents_of(set, request.verification == Verification::whole);
  }
}

// Image files are read in color if the other set is in color, and have no common size if the other set's differs.
void reconcile_shape(LoadedSet& set, const Shape& other) {
  Shape& image = set.info.image;
  if (!has_image_files(set) || image == other) return;
  const bool like_other = image[1] == other[1] && image[2] == other[2];
  image = Shape{std::max(image[0], other[0]), like_other ? image[1] : 0, like_other ? image[2] : 0};
}

void refuse_unlike_sets(const DatasetInfo& train, const DatasetInfo& test) {
  const bool sizes_fit = train.image == test.image || train.sizes_differ() || test.sizes_differ();
  if (train.image[0] == test.image[0] && sizes_fit) return;
  throw Error(ErrorSource::input,
              fmt::format("the images of {} are {} and those of {} are {}; training and test images must agree",
                          train.name, train.image.text(), test.name, test.image.text()));
}

// The location of the set for messages: its folder, if there is one.
std::string location_of(const LoadedSet& set) {
  const auto* files = std::get_if<ImageFiles>(&set.pixels);
  const auto* encoded = std::get_if<EncodedFiles>(&set.pixels);
  if (encoded != nullptr) return fmt::format("'{}'", encoded->shards.front().path);
  return files == nullptr ? set.info.name : fmt::format("'{}'", files->folder.string());
}

// If both sets have class names, maps test labels to the training classes with the same names.
void rename_labels(LoadedSet& test, const LoadedSet& train) {
  const auto& names = test.info.class_names;
  const auto& known = train.info.class_names;
  if (names.empty() || known.empty() || names == known) return;
  std::vector<std::int32_t> index_of;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
      throw Error(ErrorSource::input, fmt::format("{} has the class '{}', which {} lacks: rename or move it",
                                                  location_of(test), name, location_of(train)));
    }
    index_of.push_back(static_cast<std::int32_t>(found - known.begin()));
  }
  for (std::int32_t& label : test.labels) label = index_of.at(static_cast<std::size_t>(label));
}

// The location of a sample's label for messages; empty for generated sets and data files.
std::string location_of_label(const LoadedSet& set, std::size_t sample) {
  if (has_image_files(set)) return fmt::format("'{}'", path_of(set, sample));
  auto index = static_cast<std::int64_t>(sample);
  for (const LabelFile& file : set.label_files) {
    if (index < file.samples) return fmt::format("'{}', label {} (counted from 0)", file.path, index);
    index -= file.samples;
  }
  return {};
}

// A network cannot learn a class without training samples, and a damaged label must not add one.
void refuse_untrained_labels(const LoadedSet& test, const LoadedSet& train) {
  const std::set<std::int32_t> trained(train.labels.begin(), train.labels.end());
  const auto found = std::ranges::find_if(test.labels, [&](std::int32_t label) { return !trained.contains(label); });
  if (found == test.labels.end()) return;
  const std::string location = location_of_label(test, static_cast<std::size_t>(found - test.labels.begin()));
  if (location.empty()) return;
  const auto& names = train.info.class_names;
  const auto label = static_cast<std::size_t>(*found);
  const std::string name = label < names.size() ? fmt::format(" ('{}')", names[label]) : "";
  throw Error(ErrorSource::input,
              fmt::format("{}: the test label is {}{}, which no sample of the training set {} has: correct or remove "
                          "that test sample, or add training samples of its class",
                          location, *found, name, location_of(train)));
}

int classes_in_labels(const LoadedSet& set) {
  return set.labels.empty() ? 0 : *std::ranges::max_element(set.labels) + 1;
}

// Gives both sets a common shape, and the test set the training set's classes and statistics.
void unify_metadata(LoadedPair& pair) {
  DatasetInfo& info = pair.train.info;
  if (pair.test) rename_labels(*pair.test, pair.train);
  if (info.classes == 0) info.classes = static_cast<int>(info.class_names.size());
  if (info.classes == 0) {
    info.classes = std::max({2, classes_in_labels(pair.train), pair.test ? classes_in_labels(*pair.test) : 0});
  }
  if (const auto* pixels = std::get_if<Pixels>(&pair.train.pixels); pixels != nullptr && info.statistics.mean.empty()) {
    info.statistics = statistics_of(pixels->bytes(), info.image);
  }
  const Shape of_train = info.image;
  if (pair.test) reconcile_shape(pair.train, pair.test->info.image);
  for (auto* const values : {&info.statistics.mean, &info.statistics.deviation}) {  // gray images in color
    if (values->size() == 1) values->resize(static_cast<std::size_t>(info.image[0]), values->front());
  }
  if (!pair.test) return;
  reconcile_shape(*pair.test, of_train);
  refuse_unlike_sets(info, pair.test->info);
  pair.test->info.classes = info.classes;
  pair.test->info.class_names = info.class_names;
  pair.test->info.statistics = info.statistics;
}

void refuse_bad_ratio(const DataRequest& request) {
  const double ratio = request.validation_ratio;
  if (!(ratio >= 0 && ratio < 1)) {
    throw Error(ErrorSource::usage, fmt::format("--validation-ratio {}: give 0 (none) or a fraction below 1", ratio));
  }
  if (ratio > 0 && !request.test.empty()) {
    throw Error(ErrorSource::usage,
                fmt::format("--test-data {} and --validation-ratio {} both name a test set: give one of them",
                            request.test, ratio));
  }
}

// Training needs an image of every class.
void take_empty_classes(LoadedSet& set, const DataRequest& request, LoadedPair& pair) {
  if (!set.empty_classes.empty() && !request.lists_problems) refuse(set.empty_classes.front());
  std::ranges::move(set.empty_classes, std::back_inserter(pair.empty_classes));
}

// Releases the test set, whose pixels are the last of the block, as another one replaces it.
void drop_test(LoadedPair& pair) {
  if (auto* pixels = std::get_if<Pixels>(&pair.train.pixels)) pixels->resize(pixels->size);
  pair.test.reset();
}

LoadedPair load_checked(const DataRequest& request, GrowingMemory& block) {
  refuse_bad_ratio(request);
  const bool holds_out = request.validation_ratio > 0;
  LoadedPair pair = request.images.empty() ? load_sets(request, block) : list_images(request.images);
  if (!request.test.empty()) {
    drop_test(pair);
    pair.test = load_test_set(request, block, pair.notes);
  }
  for (LoadedSet* const set : {&pair.train, pair.test ? &*pair.test : nullptr}) {
    if (set == nullptr) continue;
    take_empty_classes(*set, request, pair);
    examine_files(*set, request, pair.notes);
  }
  if (holds_out && pair.train.info.labelled) {
    if (pair.test && !request.from_checkpoint) {
      pair.notes.push_back(
          fmt::format("--data {} has a test set, which --validation-ratio {} replaces: leave that out to keep it",
                      request.train, request.validation_ratio));
    }
    drop_test(pair);
    pair.test = hold_out(pair.train, request);
  }
  for (LoadedSet* const set : {&pair.train, pair.test ? &*pair.test : nullptr}) {
    if (set != nullptr && has_image_files(*set)) set->info.listing = listing_of(*set);
  }
  unify_metadata(pair);
  if (pair.test && !holds_out && !request.allow_untrained_labels) refuse_untrained_labels(*pair.test, pair.train);
  return pair;
}

}  // namespace

Error cannot_look_into(const fs::filesystem_error& failure) {
  return Error(ErrorSource::io,
               fmt::format("cannot look into '{}': {}", failure.path1().string(), failure.code().message()));
}

void load_data(const DataRequest& request, GrowingMemory& memory) {
  try {
    begin_block(memory);
    finish_block(load_checked(request, memory), memory);
  } catch (const fs::filesystem_error& failure) {
    throw cannot_look_into(failure);
  }
}

OwnedData open_data(const DataRequest& request) {
  GrowingMemory memory;
  load_data(request, memory);
  OwnedData data;
  data.block = memory.take();
  data.pair = open_loaded(data.block);
  return data;
}

}  // namespace tutti
