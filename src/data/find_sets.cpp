#include "find_sets.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"

#include "binary_formats.hpp"
#include "data_block.hpp"
#include "generated_sets.hpp"
#include "image_codec.hpp"
#include "image_files.hpp"
#include "image_folders.hpp"
#include "loaded_set.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSyntheticPrefix = "synthetic:";

std::string name_of_folder(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

LoadedSet set_of(std::string name, LabelledImages samples, int classes, std::vector<std::string> class_names = {}) {
  DatasetInfo info;
  info.name = std::move(name);
  info.image = samples.image;
  info.classes = classes;
  info.class_names = std::move(class_names);
  return {std::move(info), std::move(samples.labels), std::move(samples.images), {}, std::move(samples.label_files)};
}

// The first of the binary sets that the folder holds, or nothing.
std::optional<LoadedSet> read_binary_set(const fs::path& folder, std::initializer_list<std::string_view> idx_sets,
                                         std::string_view cifar_prefix) {
  for (const std::string_view set : idx_sets) {
    if (const auto files = find_idx_files(folder, set)) return set_of("", read_idx(*files), 0);
  }
  const auto files = find_cifar_files(folder, cifar_prefix);
  if (files.empty()) return std::nullopt;
  return set_of("", read_cifar(files), kCifarClasses, read_cifar_class_names(folder));
}

std::optional<LoadedSet> named(std::optional<LoadedSet> set, const fs::path& folder, std::string_view addition) {
  if (set) set->info.name = name_of_folder(folder) + std::string(addition);
  return set;
}

// Images that lie in train/ itself are of no class, and train and test are none.
void refuse_sets_as_classes(const fs::path& folder) {
  constexpr std::array<std::string_view, 4> kSets{"train", "test", "valid", "val"};
  if (!fs::is_directory(folder / "train") || list_folder(folder / "train").images.names.empty()) return;
  const FolderListing listing = list_folder(folder);
  const auto is_set = [&](const std::string& name) { return std::ranges::find(kSets, name) != kSets.end(); };
  if (!listing.images.names.empty() || !std::ranges::all_of(listing.folders, is_set)) return;
  throw Error(ErrorSource::input,
              fmt::format("'{}' holds images but no class folders: move each class into a folder of its name",
                          (folder / "train").string()));
}

std::optional<LoadedSet> find_train(const fs::path& folder, std::vector<std::string>& notes) {
  auto set = read_binary_set(folder, {"train"}, "data_batch");
  const auto inner = set ? std::nullopt : find_set_folder(folder, /*is_test=*/false);
  if (inner) set = list_class_folders(*inner, notes);
  if (!set) set = list_labelled_folder(folder, notes);
  if (!set) refuse_sets_as_classes(folder);
  if (!set) set = list_class_folders(folder, notes);
  return named(std::move(set), folder, "");
}

std::optional<LoadedSet> find_test(const fs::path& folder, std::vector<std::string>& notes) {
  auto set = read_binary_set(folder, {"t10k", "test"}, "test_batch");
  const auto inner = set ? std::nullopt : find_set_folder(folder, /*is_test=*/true);
  if (inner) set = list_class_folders(*inner, notes);
  return named(std::move(set), folder, " (test)");
}

// Whether the command data fetch (tools/companions/trainer-data-fetch) brings a set of this name.
bool can_be_fetched(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames{"mnist", "fashion-mnist", "cifar10", "cifar10-tiny"};
  return std::ranges::find(kNames, name) != kNames.end();
}

// The folder or file that an option names: as a path, or for a bare name the first of the usual places that is there.
fs::path find_place(const std::string& where, bool from_checkpoint) {
  if (where.empty()) throw Error(ErrorSource::usage, "the name of the data set is empty; see --data");
  std::vector<std::string> places{where};
  if (where.find('/') == std::string::npos) {
    places = {"./" + where, "./data/" + where};
    if (const char* root = std::getenv("TUTTI_DATA")) places.push_back((fs::path(root) / where).string());
  }
  for (const std::string& place : places) {
    if (fs::exists(place)) return place;
  }
  const bool lacks_root = places.size() == 2;
  throw Error(
      ErrorSource::io,
      fmt::format("there is no data set '{}'; looked for {}{}. {}Built-in sets: glyphs, {}NxCxHxW:classes{}", where,
                  fmt::join(places, ", "), lacks_root ? " (TUTTI_DATA is not set)" : "",
                  can_be_fetched(where) ? fmt::format("{} data fetch {} brings it. ", program_call(), where) : "",
                  kSyntheticPrefix, from_checkpoint ? ". The checkpoint names that path: --data gives another" : ""));
}

// JSON, which checkpoints and records are written in, knows no other text.
void refuse_other_than_utf8(const fs::path& place, const std::vector<std::string>& class_names) {
  const auto found = std::ranges::find_if_not(class_names, is_utf8);
  if (found == class_names.end()) return;
  throw Error(ErrorSource::input,
              fmt::format("'{}' has the class '{}', and that name is not UTF-8: rename its folder, or save the table "
                          "that names it as UTF-8",
                          place.string(), printable(*found)));
}

LoadedPair draw_glyph_pair() {
  const std::vector<std::string> digits{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  return {set_of("glyphs", draw_glyphs(0, kGlyphTrainSamples), 10, digits),
          set_of("glyphs (test)", draw_glyphs(kGlyphTrainSamples, kGlyphTestSamples), 10, digits),
          {}};
}

LoadedPair draw_synthetic_pair(const std::string& where) {
  const SyntheticSpec spec = parse_synthetic(std::string_view(where).substr(kSyntheticPrefix.size()));
  const std::int64_t test_samples = std::max<std::int64_t>(1, spec.samples / 10);
  return {set_of(where, draw_synthetic(spec, 0, spec.samples), spec.classes),
          set_of(where + " (test)", draw_synthetic(spec, spec.samples, test_samples), spec.classes),
          {}};
}

namespace fs = std::filesystem;

constexpr std::array<std::uint8_t, 8> kHdf5Signature{0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};

[[noreturn]] void refuse(const std::string& words) { throw Error(ErrorSource::input, words); }

// The first folder of images inside a class folder; empty: there is none.
std::string images_too_deep(const fs::path& folder, const FolderListing& classes) {
  for (const std::string& name : classes.folders) {
    for (const std::string& inner : list_folder(folder / name).folders) {
      if (!list_folder(folder / name / inner).images.names.empty()) return fmt::format("{}/{}", name, inner);
    }
  }
  return {};
}

// How `data fetch` brings the set that has its place there; empty: none has.
std::string fetching_words(const fs::path& folder) {
  const fs::path whole = (fs::absolute(folder) / "").lexically_normal().parent_path();
  const std::string name = whole.filename().string();
  if (!can_be_fetched(name)) return {};
  const bool is_usual = whole.parent_path() == fs::absolute("data");
  const std::string to = is_usual ? "" : fmt::format(" --to {}", whole.parent_path().string());
  return fmt::format("{} data fetch {}{} brings it", program_call(), name, to);
}

}  // namespace

LoadedPair find_sets(const DataRequest& request) {
  const std::string& where = request.train;
  if (where == "glyphs") return draw_glyph_pair();
  if (where.starts_with(kSyntheticPrefix)) return draw_synthetic_pair(where);
  const fs::path place = find_place(where, request.from_checkpoint);
  if (!fs::is_directory(place)) return read_data_file(place.string(), request);
  LoadedPair pair;
  auto train = find_train(place, pair.notes);
  if (!train && request.unlabelled_too && !list_folder(place).images.names.empty()) {
    pair = list_images({place.string()});
    pair.train.info.name = name_of_folder(place);
    return pair;
  }
  if (!train) refuse_folder(place);
  pair.train = std::move(*train);
  if (!request.any_class_names) refuse_other_than_utf8(place, pair.train.info.class_names);
  if (request.test.empty() && request.validation_ratio == 0) pair.test = find_test(place, pair.notes);
  return pair;
}

LoadedSet find_test_set(const DataRequest& request, std::vector<std::string>& notes) {
  const fs::path place = find_place(request.test, false);
  if (!fs::is_directory(place)) {
    LoadedPair pair = read_data_file(place.string(), request);
    notes.insert(notes.end(), pair.notes.begin(), pair.notes.end());
    return pair.test ? std::move(*pair.test) : std::move(pair.train);
  }
  if (auto set = find_test(place, notes)) return std::move(*set);
  if (auto set = find_train(place, notes)) return std::move(*set);
  refuse_folder(place);
}

void refuse_folder(const fs::path& folder) {
  const FolderListing listing = list_folder(folder);
  const std::size_t images = listing.images.names.size();
  const std::string fetching = fetching_words(folder);
  if (images == 0 && listing.folders.empty() && listing.others.empty()) {
    refuse(fmt::format("'{}' is empty: {}", folder.string(),
                       fetching.empty() ? "put a folder of images for each class there" : fetching));
  }
  if (images > 0 && listing.folders.empty()) {
    refuse(
        fmt::format("'{}' holds {} image file{} but no class folders: move each class into a folder of its name, or "
                    "add labels.csv",
                    folder.string(), images, images == 1 ? "" : "s"));
  }
  if (const std::string deeper = images_too_deep(folder, listing); !deeper.empty()) {
    refuse(
        fmt::format("'{}' holds no images that can be read: folders inside a class folder, as '{}', are not read; "
                    "move their images into the class folder itself",
                    folder.string(), deeper));
  }
  refuse(
      fmt::format("'{}' holds no images that can be read{}: neither idx files (train-images-idx3-ubyte and "
                  "train-labels-idx1-ubyte) nor CIFAR batches (data_batch_*.bin), raw or .gz, nor folders of the "
                  "names of classes, here or in train/, with .jpg or .png files in them, nor such files with a table "
                  "labels.csv",
                  folder.string(), fetching.empty() ? "" : fmt::format(" ({})", fetching)));
}

void refuse_foreign_file(const std::string& path) {
  std::array<std::uint8_t, kHdf5Signature.size()> first{};
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) return;
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  file.read(reinterpret_cast<char*>(first.data()), first.size());
  if (file.bad() || first == kHdf5Signature) return;
  if (begins_as_image(std::span(first).first(static_cast<std::size_t>(file.gcount())))) {
    refuse(fmt::format("'{}' is an image; --data wants the folder that holds the class folders", path));
  }
  refuse(fmt::format("'{}' is no data set: give a folder, or an HDF5 file that {} data convert wrote", path,
                     program_call()));
}

}  // namespace tutti
