#pragma once
// Predictions as comma-separated values (RFC 4180, but lines end in LF), with a header:
//   image              the file, or its number in its set
//   set                train or test, where both are told
//   label              the class by the data, where it is known
//   predicted, probability, then predicted_2, probability_2 .. for the less probable classes that were asked for
//   p_<class>          probabilities of all classes, where they were asked for
//   problem            why the image was left out, where that may be; what is predicted is empty then
// Numbers are the shortest that read back as the same double.

#include "prediction.hpp"
#include "text_outlet.hpp"

#include <string>

namespace tutti {

class CsvPredictions final : public PredictionSink {
 public:
  CsvPredictions(const std::string& path, PredictionColumns columns);
  void add(const Prediction& prediction) override;
  void finish() override { outlet_.finish(); }

 private:
  PredictionColumns columns_;
  TextOutlet outlet_;
};

}  // namespace tutti
