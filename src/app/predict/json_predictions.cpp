#include "json_predictions.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <utility>

namespace tutti {

using Json = nlohmann::ordered_json;

JsonPredictions::JsonPredictions(const std::string& path, PredictionColumns columns)
    : columns_(std::move(columns)), outlet_(path) {}

void JsonPredictions::add(const Prediction& prediction) {
  const auto& names = columns_.class_names;
  Json json;
  json["image"] = prediction.file.empty() ? Json(prediction.number) : Json(prediction.file);
  if (columns_.sets) json["set"] = prediction.set;
  if (columns_.labels) json["label"] = prediction.label ? Json(names[*prediction.label]) : Json();
  if (!prediction.problem.empty()) {
    json["problem"] = prediction.problem;
  } else {
    json["predicted"] = names[prediction.best.front().number];
    json["probability"] = prediction.best.front().probability;
  }
  if (columns_.best > 1) {
    for (const auto& [number, probability] : prediction.best) {
      json["best"].push_back({{"class", names[number]}, {"probability", probability}});
    }
  }
  for (std::size_t i = 0; i < prediction.probabilities.size(); ++i) {
    json["probabilities"][names[i]] = prediction.probabilities[i];
  }
  outlet_.append(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace tutti
