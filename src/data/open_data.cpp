#include "tutti/base/error.hpp"
#include "tutti/data/dataset.hpp"

#include "cifar_reader.hpp"
#include "glyphs.hpp"
#include "idx_reader.hpp"
#include "labelled_images.hpp"
#include "synthetic.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSyntheticPrefix = "synthetic:";

struct Source {
  std::string name;
  LabelledImages samples;
  int classes = 0;  // 0: as many as the labels show
  std::vector<std::string> class_names;
};

struct SourcePair {
  Source train;
  std::optional<Source> test;
};

std::string name_of_folder(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

// The first of the sets that the folder holds, or nothing.
std::optional<Source> read_set(const fs::path& folder, std::initializer_list<std::string_view> idx_sets,
                               std::string_view cifar_prefix) {
  for (const std::string_view set : idx_sets) {
    if (const auto files = find_idx_files(folder, set)) {
      return Source{name_of_folder(folder), read_idx(*files), 0, {}};
    }
  }
  if (const auto files = find_cifar_files(folder, cifar_prefix); !files.empty()) {
    return Source{name_of_folder(folder), read_cifar(files), kCifarClasses, read_cifar_class_names(folder)};
  }
  return std::nullopt;
}

std::optional<Source> read_train(const fs::path& folder) { return read_set(folder, {"train"}, "data_batch"); }

std::optional<Source> read_test(const fs::path& folder) {
  auto source = read_set(folder, {"t10k", "test"}, "test_batch");
  if (source) source->name += " (test)";
  return source;
}

[[noreturn]] void refuse_folder(const fs::path& folder) {
  throw Error(ErrorSource::input,
              fmt::format("'{}' holds no images that can be read: neither idx files (train-images-idx3-ubyte and "
                          "train-labels-idx1-ubyte) nor CIFAR batches (data_batch_*.bin), raw or .gz",
                          folder.string()));
}

// The folder that an option names: as a path, or for a bare name the first of the usual places that is there.
fs::path find_folder(const std::string& where) {
  if (where.empty()) throw Error(ErrorSource::usage, "the name of the data set is empty; see --data");
  std::vector<std::string> places{where};
  if (where.find('/') == std::string::npos) {
    places = {"./" + where, "./data/" + where};
    if (const char* root = std::getenv("TUTTI_DATA")) places.push_back((fs::path(root) / where).string());
  }
  for (const std::string& place : places) {
    if (fs::is_directory(place)) return place;
    if (fs::exists(place)) {
      throw Error(ErrorSource::input, fmt::format("'{}' is not a folder; give the folder that holds the files", place));
    }
  }
  const bool lacks_root = places.size() == 2;
  throw Error(ErrorSource::io,
              fmt::format("there is no data set '{}'; looked for {}{}. Built-in sets: glyphs, {}NxCxHxW:classes", where,
                          fmt::join(places, ", "), lacks_root ? " (TUTTI_DATA is not set)" : "", kSyntheticPrefix));
}

SourcePair draw_glyph_pair() {
  const std::vector<std::string> digits{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  return {Source{"glyphs", draw_glyphs(0, kGlyphTrainSamples), 10, digits},
          Source{"glyphs (test)", draw_glyphs(kGlyphTrainSamples, kGlyphTestSamples), 10, digits}};
}

SourcePair draw_synthetic_pair(const std::string& where) {
  const SyntheticSpec spec = parse_synthetic(std::string_view(where).substr(kSyntheticPrefix.size()));
  const std::int64_t test_samples = std::max<std::int64_t>(1, spec.samples / 10);
  return {Source{where, draw_synthetic(spec, 0, spec.samples), spec.classes, {}},
          Source{where + " (test)", draw_synthetic(spec, spec.samples, test_samples), spec.classes, {}}};
}

SourcePair open_pair(const std::string& where, bool wants_test) {
  if (where == "glyphs") return draw_glyph_pair();
  if (where.starts_with(kSyntheticPrefix)) return draw_synthetic_pair(where);
  const fs::path folder = find_folder(where);
  auto train = read_train(folder);
  if (!train) refuse_folder(folder);
  return {std::move(*train), wants_test ? read_test(folder) : std::nullopt};
}

// A folder given for the test set alone may hold files named as such or as a training set.
Source open_test(const std::string& where) {
  const fs::path folder = find_folder(where);
  if (auto source = read_test(folder)) return std::move(*source);
  if (auto source = read_train(folder)) return std::move(*source);
  refuse_folder(folder);
}

int classes_shown(const Source& source) {
  const auto& labels = source.samples.labels;
  return source.classes > 0 || labels.empty() ? source.classes : *std::max_element(labels.begin(), labels.end()) + 1;
}

int classes_of(const SourcePair& pair) {
  if (pair.train.classes > 0) return pair.train.classes;
  return std::max({2, classes_shown(pair.train), pair.test ? classes_shown(*pair.test) : 0});
}

std::unique_ptr<Dataset> make_dataset(Source source, int classes, const std::vector<std::string>& class_names) {
  const auto samples = static_cast<std::int64_t>(source.samples.labels.size());
  DatasetInfo info{std::move(source.name), source.samples.image, classes, class_names, samples};
  return std::make_unique<MemoryDataset>(std::move(info), std::move(source.samples.images),
                                         std::move(source.samples.labels));
}

DataPair open_checked(const std::string& where, const std::string& test) {
  SourcePair pair = open_pair(where, test.empty());
  if (!test.empty()) pair.test = open_test(test);
  if (pair.test && pair.test->samples.image != pair.train.samples.image) {
    throw Error(ErrorSource::input,
                fmt::format("the images of {} are {} and those of {} are {}; training and test images must agree",
                            pair.train.name, pair.train.samples.image.text(), pair.test->name,
                            pair.test->samples.image.text()));
  }
  const int classes = classes_of(pair);
  const std::vector<std::string> class_names = pair.train.class_names;
  DataPair opened;
  opened.train = make_dataset(std::move(pair.train), classes, class_names);
  if (pair.test) opened.test = make_dataset(std::move(*pair.test), classes, class_names);
  return opened;
}

}  // namespace

DataPair open_data(const std::string& where, const std::string& test) {
  try {
    return open_checked(where, test);
  } catch (const fs::filesystem_error& failure) {
    throw Error(ErrorSource::io,
                fmt::format("cannot look into '{}': {}", failure.path1().string(), failure.code().message()));
  }
}

}  // namespace tutti
