#include "tutti/data/open_data.hpp"

#include "tutti/base/error.hpp"

#include "data_block.hpp"
#include "find_sets.hpp"
#include "image_folders.hpp"
#include "loaded_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Learns the shape of a set of image files, and leaves bad ones out when told to.
void examine_files(LoadedSet& set, const DataRequest& request, std::vector<std::string>& notes) {
  auto* files = std::get_if<ImageFiles>(&set.pixels);
  if (files == nullptr) return;
  files->upright = request.upright;
  ImageFindings findings = examine(*files, request.verification, request.skip_bad_images);
  set.info.image = findings.image;
  if (findings.bad.empty()) return;
  if (findings.bad.size() == files->names.size()) {
    throw Error(ErrorSource::input, fmt::format("all {} images of {} are bad: first {}", files->names.size(),
                                                set.info.name, findings.problems.front()));
  }
  notes.push_back(fmt::format("{} of {} images of {} skipped: first {}", findings.bad.size(), files->names.size(),
                              set.info.name, findings.problems.front()));
  for (std::size_t i = 0; i < findings.bad.size(); ++i) {
    set.info.skipped.push_back({.before = static_cast<std::int64_t>(findings.bad[i] - i),
                                .name = (files->folder / files->names[findings.bad[i]]).string(),
                                .problem = std::move(findings.problems[i])});
  }
  take_out(set, findings.bad);
}

// Files given one by one are labelled once, and nothing is compared with them later.
void note_contents(LoadedSet& set, const DataRequest& request) {
  const auto* files = std::get_if<ImageFiles>(&set.pixels);
  if (files == nullptr || !request.images.empty() || request.any_test_labels) return;
  set.info.contents = contents_of(*files, request.verification == Verification::whole);
}

// Files become colour where the other set is, and are of any size where the other set has another.
void settle_shape(LoadedSet& set, const Shape& other) {
  Shape& image = set.info.image;
  if (!std::holds_alternative<ImageFiles>(set.pixels) || image == other) return;
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

// Where the user can mend it: the folder, where there is one.
std::string place_of(const LoadedSet& set) {
  const auto* files = std::get_if<ImageFiles>(&set.pixels);
  return files == nullptr ? set.info.name : fmt::format("'{}'", files->folder.string());
}

// Where both sets name their classes, a test label is the number of the training class of that name.
void rename_labels(LoadedSet& test, const LoadedSet& train) {
  const auto& names = test.info.class_names;
  const auto& known = train.info.class_names;
  if (names.empty() || known.empty() || names == known) return;
  std::vector<std::int32_t> number_of;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
      throw Error(ErrorSource::input, fmt::format("{} has the class '{}', which {} lacks: rename or move it",
                                                  place_of(test), name, place_of(train)));
    }
    number_of.push_back(static_cast<std::int32_t>(found - known.begin()));
  }
  for (std::int32_t& label : test.labels) label = number_of.at(static_cast<std::size_t>(label));
}

// Where a sample's label was read, for whoever mends it; empty where the program drew the samples, or
// sealed them in a data file.
std::string place_of_label(const LoadedSet& set, std::size_t sample) {
  if (const auto* files = std::get_if<ImageFiles>(&set.pixels)) {
    return fmt::format("'{}'", (files->folder / files->names[sample]).string());
  }
  auto index = static_cast<std::int64_t>(sample);
  for (const LabelFile& file : set.label_files) {
    if (index < file.samples) return fmt::format("'{}', label {} (counted from 0)", file.path, index);
    index -= file.samples;
  }
  return {};
}

// A network cannot learn such a class, and a damaged byte must not add one.
void refuse_untrained_labels(const LoadedSet& test, const LoadedSet& train) {
  const std::set<std::int32_t> trained(train.labels.begin(), train.labels.end());
  const auto found = std::ranges::find_if(test.labels, [&](std::int32_t label) { return !trained.contains(label); });
  if (found == test.labels.end()) return;
  const std::string place = place_of_label(test, static_cast<std::size_t>(found - test.labels.begin()));
  if (place.empty()) return;
  const auto& names = train.info.class_names;
  const auto label = static_cast<std::size_t>(*found);
  const std::string name = label < names.size() ? fmt::format(" ('{}')", names[label]) : "";
  throw Error(ErrorSource::input,
              fmt::format("{}: the test label is {}{}, which no sample of the training set {} has: correct or remove "
                          "that test sample, or add training samples of its class",
                          place, *found, name, place_of(train)));
}

int classes_shown(const LoadedSet& set) { return set.labels.empty() ? 0 : *std::ranges::max_element(set.labels) + 1; }

void find_statistics(LoadedSet& set) {
  const auto* images = std::get_if<std::vector<std::uint8_t>>(&set.pixels);
  if (images == nullptr || !set.info.statistics.mean.empty()) return;
  set.info.statistics = statistics_of(*images, set.info.image);
}

// What the two sets have in common: shape, and the training set's classes and statistics.
void share_facts(LoadedPair& pair) {
  DatasetInfo& info = pair.train.info;
  if (pair.test) rename_labels(*pair.test, pair.train);
  if (info.classes == 0) info.classes = static_cast<int>(info.class_names.size());
  if (info.classes == 0) {
    info.classes = std::max({2, classes_shown(pair.train), pair.test ? classes_shown(*pair.test) : 0});
  }
  find_statistics(pair.train);
  if (!pair.test) return;
  const Shape of_train = info.image;
  settle_shape(pair.train, pair.test->info.image);
  settle_shape(*pair.test, of_train);
  refuse_unlike_sets(info, pair.test->info);
  pair.test->info.classes = info.classes;
  pair.test->info.class_names = info.class_names;
  pair.test->info.statistics = info.statistics;
}

void note_one_class(const LoadedSet& train, std::vector<std::string>& notes) {
  const auto& labels = train.labels;
  if (!train.info.labelled || labels.empty()) return;
  if (std::ranges::any_of(labels, [&](std::int32_t label) { return label != labels.front(); })) return;
  const auto label = static_cast<std::size_t>(labels.front());
  const auto& names = train.info.class_names;
  notes.push_back(fmt::format("{} has images of one class alone, {}: there is nothing to tell apart", train.info.name,
                              label < names.size() ? fmt::format("'{}'", names[label]) : fmt::format("{}", label)));
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
  const bool holds_out = request.validation_ratio > 0;
  LoadedPair pair = request.images.empty() ? find_sets(request) : list_images(request.images);
  if (!request.test.empty()) pair.test = find_test_set(request, pair.notes);
  for (LoadedSet* const set : {&pair.train, pair.test ? &*pair.test : nullptr}) {
    if (set == nullptr) continue;
    examine_files(*set, request, pair.notes);
    note_contents(*set, request);
  }
  if (holds_out && pair.train.info.labelled) pair.test = hold_out(pair.train, request.validation_ratio, request.seed);
  share_facts(pair);
  if (pair.test && !holds_out && !request.any_test_labels) refuse_untrained_labels(*pair.test, pair.train);
  note_one_class(pair.train, pair.notes);
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
