#include "tutti/data/open_data.hpp"

#include "tutti/base/error.hpp"

#include "channel_sums.hpp"
#include "cifar_reader.hpp"
#include "data_block.hpp"
#include "glyphs.hpp"
#include "idx_reader.hpp"
#include "labelled_images.hpp"
#include "synthetic.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
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

constexpr std::array<double, 3> kCifarMean{0.4914, 0.4822, 0.4465};
constexpr std::array<double, 3> kCifarDeviation{0.2023, 0.1994, 0.2010};

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
  return {std::move(info), std::move(samples.labels), std::move(samples.images)};
}

// The first of the sets that the folder holds, or nothing.
std::optional<LoadedSet> read_set(const fs::path& folder, std::initializer_list<std::string_view> idx_sets,
                                  std::string_view cifar_prefix) {
  for (const std::string_view set : idx_sets) {
    if (const auto files = find_idx_files(folder, set)) return set_of(name_of_folder(folder), read_idx(*files), 0);
  }
  const auto files = find_cifar_files(folder, cifar_prefix);
  if (files.empty()) return std::nullopt;
  auto set = set_of(name_of_folder(folder), read_cifar(files), kCifarClasses, read_cifar_class_names(folder));
  set.info.statistics = {{kCifarMean.begin(), kCifarMean.end()}, {kCifarDeviation.begin(), kCifarDeviation.end()}};
  return set;
}

std::optional<LoadedSet> read_train(const fs::path& folder) { return read_set(folder, {"train"}, "data_batch"); }

std::optional<LoadedSet> read_test(const fs::path& folder) {
  auto set = read_set(folder, {"t10k", "test"}, "test_batch");
  if (set) set->info.name += " (test)";
  return set;
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

LoadedPair load_pair(const DataRequest& request) {
  if (request.train == "glyphs") return draw_glyph_pair();
  if (request.train.starts_with(kSyntheticPrefix)) return draw_synthetic_pair(request.train);
  const fs::path folder = find_folder(request.train);
  auto train = read_train(folder);
  if (!train) refuse_folder(folder);
  const bool wants_test = request.test.empty() && request.validation_ratio == 0;
  return {std::move(*train), wants_test ? read_test(folder) : std::nullopt, {}};
}

// A folder given for the test set alone may hold files named as such or as a training set.
LoadedSet load_test(const std::string& where) {
  const fs::path folder = find_folder(where);
  if (auto set = read_test(folder)) return std::move(*set);
  if (auto set = read_train(folder)) return std::move(*set);
  refuse_folder(folder);
}

void refuse_unlike_sets(const DatasetInfo& train, const DatasetInfo& test) {
  if (test.image == train.image) return;
  throw Error(ErrorSource::input,
              fmt::format("the images of {} are {} and those of {} are {}; training and test images must agree",
                          train.name, train.image.text(), test.name, test.image.text()));
}

int classes_shown(const LoadedSet& set) {
  return set.labels.empty() ? 0 : *std::max_element(set.labels.begin(), set.labels.end()) + 1;
}

// What the two sets have in common: the training set's classes and statistics.
void share_facts(LoadedPair& pair) {
  DatasetInfo& info = pair.train.info;
  if (info.classes == 0) {
    info.classes = std::max({2, classes_shown(pair.train), pair.test ? classes_shown(*pair.test) : 0});
  }
  if (info.statistics.mean.empty()) {
    ChannelSums sums(info.image[0], info.image[1] * info.image[2]);
    sums.add(std::get<std::vector<std::uint8_t>>(pair.train.pixels));
    info.statistics = sums.statistics();
  }
  if (!pair.test) return;
  refuse_unlike_sets(info, pair.test->info);
  pair.test->info.classes = info.classes;
  pair.test->info.class_names = info.class_names;
  pair.test->info.statistics = info.statistics;
}

void refuse_bad_ratio(const DataRequest& request) {
  const double ratio = request.validation_ratio;
  if (!(ratio >= 0 && ratio < 1)) {
    throw Error(ErrorSource::usage, fmt::format("--validation-ratio {}: give 0 (none) or a share below 1", ratio));
  }
  if (ratio > 0 && !request.test.empty()) {
    throw Error(ErrorSource::usage,
                fmt::format("--test-data {} and --validation-ratio {} both say what the test set is: give one of them",
                            request.test, ratio));
  }
}

LoadedPair load_checked(const DataRequest& request) {
  refuse_bad_ratio(request);
  LoadedPair pair = load_pair(request);
  if (!request.test.empty()) pair.test = load_test(request.test);
  if (request.validation_ratio > 0) pair.test = hold_out(pair.train, request.validation_ratio, request.seed);
  share_facts(pair);
  return pair;
}

}  // namespace

std::vector<std::byte> load_data(const DataRequest& request) {
  try {
    return write_block(load_checked(request));
  } catch (const fs::filesystem_error& failure) {
    throw Error(ErrorSource::io,
                fmt::format("cannot look into '{}': {}", failure.path1().string(), failure.code().message()));
  }
}

DataPair open_loaded(std::span<const std::byte> block) { return read_block(block); }

OwnedData open_data(const DataRequest& request) {
  OwnedData data;
  data.block = load_data(request);
  data.pair = open_loaded(data.block);
  return data;
}

}  // namespace tutti
