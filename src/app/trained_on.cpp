#include "trained_on.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/utf8.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
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
    throw Error(ErrorSource::checkpoint, fmt::format("an image of {} extents, {} classes and {} names of such",
                                                     image.size(), found.classes, found.class_names.size()));
  }
  return found;
}

}  // namespace

std::string trained_on_text(const Network& network, const DatasetInfo& data) {
  const auto image = network.sample().extents();
  const bool names_fit = std::ranges::all_of(data.class_names, is_utf8);  // as JSON wants them
  return Json{{"image", std::vector<std::int64_t>(image.begin(), image.end())},
              {"classes", network.classes()},
              {"class_names", names_fit ? data.class_names : std::vector<std::string>{}}}
      .dump();
}

std::optional<TrainedOn> trained_on(const LoadedCheckpoint& loaded) {
  if (loaded.state.data.empty()) return std::nullopt;
  try {
    return parse(loaded.state.data);
  } catch (const std::exception& fault) {
    throw Error(ErrorSource::checkpoint,
                fmt::format("'{}': /run/data is not what a checkpoint has there: {}", loaded.path, fault.what()));
  }
}

}  // namespace tutti
