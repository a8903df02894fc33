#include "tutti/data/trained_on.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::optional<FileContents>& files) {
  if (!files) return nullptr;
  Json json{{"sampled", files->sampled_files}, {"sample", digest_text(files->sample_digest)}};
  if (files->whole) json["whole"] = digest_text(*files->whole);
  return json;
}

std::uint64_t digest_in(const Json& json) { return std::stoull(json.get<std::string>(), nullptr, 16); }

std::optional<FileContents> files_in(const Json& json) {
  if (json.is_null()) return std::nullopt;
  FileContents files{.sampled_files = json.at("sampled").get<std::int64_t>(),
                     .sample_digest = digest_in(json.at("sample"))};
  if (json.contains("whole")) files.whole = digest_in(json.at("whole"));
  return files;
}

Error damaged(const LoadedCheckpoint& loaded, const std::string& what) {
  return Error(ErrorSource::checkpoint, fmt::format("'{}': /run/data is damaged: {}", loaded.path, what));
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

std::string trained_on_text(const TrainedOn& data, const DataDigests& digests) {
  const auto image = data.image.extents();
  const bool names_fit = std::ranges::all_of(data.class_names, is_utf8);  // JSON allows nothing else
  return Json{{"image", std::vector<std::int64_t>(image.begin(), image.end())},
              {"keeps_short_side", data.keeps_short_side},
              {"classes", data.classes},
              {"class_names", names_fit ? data.class_names : std::vector<std::string>{}},
              {"test_digest", digests.test ? Json(digest_text(*digests.test)) : Json()},
              {"train_files", json_of(digests.train_files)},
              {"test_files", json_of(digests.test_files)}}
      .dump();
}

std::optional<TrainedOn> trained_on(const LoadedCheckpoint& loaded) {
  if (loaded.state.data.empty()) return std::nullopt;
  try {
    const Json json = Json::parse(loaded.state.data);
    const auto image = json.at("image").get<std::vector<std::int64_t>>();
    TrainedOn found{.image = Shape(image),
                    .classes = json.at("classes").get<int>(),
                    .class_names = json.at("class_names").get<std::vector<std::string>>(),
                    .keeps_short_side = json.value("keeps_short_side", false)};
    const bool has_image = image.size() == 3 && std::ranges::all_of(image, [](std::int64_t n) { return n > 0; });
    const bool names_all = found.class_names.empty() || std::ssize(found.class_names) == found.classes;
    if (has_image && found.classes >= 1 && names_all) return found;
    throw Error(ErrorSource::checkpoint, fmt::format("an image of {} extents, {} classes and {} class names",
                                                     image.size(), found.classes, found.class_names.size()));
  } catch (const std::exception& error) {
    throw damaged(loaded, error.what());
  }
}

std::optional<DataDigests> stored_digests(const LoadedCheckpoint& loaded) {
  const Json json = Json::parse(loaded.state.data, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("test_digest")) return std::nullopt;
  try {
    DataDigests digests{.train = loaded.state.data_digest,
                        .train_files = files_in(json.at("train_files")),
                        .test_files = files_in(json.at("test_files"))};
    if (!json.at("test_digest").is_null()) digests.test = digest_in(json.at("test_digest"));
    return digests;
  } catch (const std::exception& error) {
    throw damaged(loaded, error.what());
  }
}

}  // namespace tutti
