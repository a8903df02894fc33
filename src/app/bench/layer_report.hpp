#pragma once
// What is told of a step layer by layer: medians over rounds of measuring it, beside those of the library's own
// primitives and of what the processor can do.

#include "tutti/backend/library_floor.hpp"
#include "tutti/nn/network.hpp"

#include "layer_clock.hpp"

#include <nlohmann/json_fwd.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

struct LayersRound {
  ProfiledStep step;
  std::vector<std::optional<PrimitiveTimes>> library;  // by layer
  ProcessorRates rates;
};

// Of one layer and batch.
struct LayerWork {
  double forward_operations = 0;  // of the direct convolution, a multiply-add counting as two
  double backward_operations = 0;
  double bytes = 0;  // of activations, gradients and weights: each read or written once in every pass that takes it
};

struct LayerFigures {
  std::string name;
  std::string type;
  Shape input;  // of a sample
  LayerSeconds seconds;
  LayerWork work;
  std::optional<PrimitiveTimes> library;
  double operations_limit = 0;  // seconds of forward and backward, as the processor's rates allow
  double memory_limit = 0;

  double total() const { return seconds.forward + seconds.backward; }
  double limit() const { return std::max(operations_limit, memory_limit); }
};

struct LayersReport {
  std::vector<LayerFigures> layers;
  ProfiledStep step;
  double left = 0;  // of a step, in none of its parts
  ProcessorRates rates;

  // All parts together, which is what the library's primitives together compare with: of either, what happens to one in
  // a few rounds does not count. The median of whole steps is longer where the machine has other work.
  double parts() const { return step.step - step.left() + left; }
  double library_seconds() const;
  double limit() const;
};

struct MeasuredNetwork {
  const Network& network;
  std::int64_t samples;  // of a batch
  Precision precision;
};

LayersReport report_of(const MeasuredNetwork& measured, const std::vector<LayersRound>& rounds);
std::string table_of(const LayersReport& report);
nlohmann::ordered_json json_of(const LayersReport& report);

}  // namespace tutti
