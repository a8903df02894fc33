#include "trained_on.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"

#include "option_table.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

TrainedOn parse(const std::string& text) {
  const Json json = Json::parse(text);
  const auto image = json.at("image").get<std::vector<std::int64_t>>();
  TrainedOn found{.image = Shape(image),
                  .classes = json.at("classes").get<int>(),
                  .class_names = json.at("class_names").get<std::vector<std::string>>()};
  const bool has_image = image.size() == 3 && std::ranges::all_of(image, [](std::int64_t n) { return n > 0; });
  const bool names_all = found.class_names.empty() || std::ssize(found.class_names) == found.classes;
  if (!has_image || found.classes < 1 || !names_all) {
    throw Error(ErrorSource::checkpoint, fmt::format("an image of {} extents, {} classes and {} class names",
                                                     image.size(), found.classes, found.class_names.size()));
  }
  return found;
}

Json files_json(const std::optional<FileContents>& files) {
  if (!files) return nullptr;
  Json json{{"sampled", files->sampled}, {"sample", digest_text(files->sample)}};
  if (files->whole) json["whole"] = digest_text(*files->whole);
  return json;
}

std::uint64_t digest_in(const Json& json) { return std::stoull(json.get<std::string>(), nullptr, 16); }

std::optional<FileContents> files_in(const Json& json) {
  if (json.is_null()) return std::nullopt;
  FileContents files{.sampled = json.at("sampled").get<std::int64_t>(), .sample = digest_in(json.at("sample"))};
  if (json.contains("whole")) files.whole = digest_in(json.at("whole"));
  return files;
}

// Nothing if an early version saved the checkpoint.
std::optional<DataDigests> stored_digests(const LoadedCheckpoint& loaded) {
  const Json json = Json::parse(loaded.state.data, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("test_digest")) return std::nullopt;
  try {
    DataDigests digests{.train = loaded.state.data_digest,
                        .train_files = files_in(json.at("train_files")),
                        .test_files = files_in(json.at("test_files"))};
    if (!json.at("test_digest").is_null()) digests.test = digest_in(json.at("test_digest"));
    return digests;
  } catch (const std::exception& fault) {
    throw Error(ErrorSource::checkpoint, fmt::format("'{}': /run/data is damaged: {}", loaded.path, fault.what()));
  }
}

// Compares the digests of all files if both times all were read, else those of the same sample of files.
void refuse_other_files(const std::string& what, const std::string& path, const std::optional<FileContents>& then,
                        std::optional<FileContents>& now) {
  if (!then || !now) return;
  const bool by_all = then->whole && now->whole;
  const bool comparable = by_all || then->sampled == now->sampled;
  const std::uint64_t before = by_all ? *then->whole : then->sample;
  const std::uint64_t found = by_all ? *now->whole : now->sample;
  if (comparable && before != found) {
    throw Error(
        ErrorSource::input,
        fmt::format("{} have changed since the checkpoint {} was saved, though their names and sizes are the same "
                    "({}: digest {} instead of {}): give the data of the run",
                    what, path, by_all ? "all files read" : fmt::format("{} files read", now->sampled),
                    digest_text(found), digest_text(before)))
        .on_all_ranks();
  }
  if (comparable && !now->whole) now->whole = then->whole;
}

}  // namespace

DataDigests digests_of(const DataPair& data) {
  DataDigests digests{.train = data.train->digest(), .train_files = data.train->info().contents};
  if (data.test) {
    digests.test = data.test->digest();
    digests.test_files = data.test->info().contents;
  }
  return digests;
}

Findings judge_weights(const std::optional<LoadedCheckpoint>& first, const RunConfig& config, const Network& network,
                       const DatasetInfo& data) {
  Findings findings;
  if (!first) return findings;
  const LoadedCheckpoint& weights = *first;
  RunConfig theirs;
  std::set<std::string> read;
  read_config_text(weights.state.configuration, weights.path, theirs, read);
  if (theirs.normalize != config.normalize) {
    findings.warn(
        fmt::format("--normalize is {} here, and the weights of {} were trained with {}: unless you want that, "
                    "give --normalize {}",
                    config.normalize, weights.path, theirs.normalize, theirs.normalize));
  }
  const auto trained = trained_on(weights);
  if (!trained) return findings;
  const Shape image = network.sample();
  if (trained->image[1] != image[1] || trained->image[2] != image[2]) {
    findings.warn(
        fmt::format("the images are {} x {} here, and {} x {} where the weights of {} were trained: "
                    "--image-size {} fits them",
                    image[1], image[2], trained->image[1], trained->image[2], weights.path, trained->image[1]));
  }
  // With another number of classes the last layer is initialised anew.
  const auto& before = trained->class_names;
  const auto& now = data.class_names;
  if (trained->classes != network.classes() || before.size() != now.size()) return findings;
  const auto [was, is] = std::ranges::mismatch(before, now);
  if (was != before.end()) {
    findings.warn(
        fmt::format("class {} is '{}' here, and was '{}' where the weights of {} were trained: the last layer "
                    "starts with the weights of other classes",
                    is - now.begin(), *is, *was, weights.path));
  }
  return findings;
}

Findings refuse_other_data(const LoadedCheckpoint& resumed, const RunConfig& config, DataDigests& digests) {
  const auto refuse = [&](const std::string& what, std::uint64_t found, const char* verb, std::uint64_t before) {
    throw Error(ErrorSource::input, fmt::format("{} has digest {}, but the checkpoint {} was {} digest {}: give the "
                                                "data of the run",
                                                what, digest_text(found), resumed.path, verb, digest_text(before)))
        .on_all_ranks();
  };
  const std::string train = "--data " + config.data;
  if (resumed.state.data_digest != digests.train) {
    refuse(train, digests.train, "trained on", resumed.state.data_digest);
  }
  const auto stored = stored_digests(resumed);
  if (!stored) return {};
  Findings warnings;
  const std::string test = "the test set of " + (config.test_data.empty() ? train : "--test-data " + config.test_data);
  if (stored->test && digests.test && *stored->test != *digests.test) {
    refuse(test, *digests.test, "evaluated on", *stored->test);
  }
  const auto& files = stored->train_files;
  if (config.verify_data && files && !files->whole && digests.train_files) {
    warnings.warn(
        fmt::format("--verify-data has decoded all images, but the checkpoint has the digest of only {} of them: "
                    "changes in the others cannot be found this time",
                    files->sampled));
  }
  refuse_other_files("the training images of " + train, resumed.path, stored->train_files, digests.train_files);
  refuse_other_files("the images of " + test, resumed.path, stored->test_files, digests.test_files);
  if (stored->test.has_value() != digests.test.has_value()) {
    warnings.warn(fmt::format("the run had {} test set until the checkpoint {}, and has {} now",
                              stored->test ? "a" : "no", resumed.path, digests.test ? "one" : "none"));
  }
  return warnings;
}

std::string trained_on_text(const Network& network, const DatasetInfo& data, const DataDigests& digests) {
  const auto image = network.sample().extents();
  const bool names_fit = std::ranges::all_of(data.class_names, is_utf8);  // as JSON wants them
  return Json{{"image", std::vector<std::int64_t>(image.begin(), image.end())},
              {"classes", network.classes()},
              {"class_names", names_fit ? data.class_names : std::vector<std::string>{}},
              {"test_digest", digests.test ? Json(digest_text(*digests.test)) : Json()},
              {"train_files", files_json(digests.train_files)},
              {"test_files", files_json(digests.test_files)}}
      .dump();
}

std::optional<TrainedOn> trained_on(const LoadedCheckpoint& loaded) {
  if (loaded.state.data.empty()) return std::nullopt;
  try {
    return parse(loaded.state.data);
  } catch (const std::exception& fault) {
    throw Error(ErrorSource::checkpoint, fmt::format("'{}': /run/data is damaged: {}", loaded.path, fault.what()));
  }
}

}  // namespace tutti
