#pragma once
// Predictions as an aligned table on stdout, for people: the first of them, and how many more there are.

#include "prediction.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

class PredictionTable final : public PredictionSink {
 public:
  explicit PredictionTable(PredictionColumns columns);
  void add(const Prediction& prediction) override;
  void finish() override;

 private:
  PredictionColumns columns_;
  std::vector<std::vector<std::string>> rows_;
  std::int64_t more_ = 0;
};

}  // namespace tutti
