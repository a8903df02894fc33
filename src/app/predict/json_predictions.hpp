#pragma once
// Predictions as JSON, a line each: "image" (the file, or its number in its set), "set" where both are told, "label"
// where the data have any (null: unknown), "predicted" and "probability"; "best", a list of "class" and "probability",
// where more than one was asked for; "probabilities" by class, where asked for. Of an image that was left out there is
// "problem" in place of what is predicted.

#include "prediction.hpp"
#include "text_outlet.hpp"

#include <string>

namespace tutti {

class JsonPredictions final : public PredictionSink {
 public:
  JsonPredictions(const std::string& path, PredictionColumns columns);
  void add(const Prediction& prediction) override;
  void finish() override { outlet_.finish(); }

 private:
  PredictionColumns columns_;
  TextOutlet outlet_;
};

}  // namespace tutti
