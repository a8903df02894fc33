#pragma once
// All that a forecast rests on: measured by bench scaling, kept in its JSON under "forecast"/"inputs", and read back
// from there or from a file that was written by hand.
//
//   {"source": "measured on 2 hosts", "model": "resnet18", "ranks_per_node": 1, "overlaps": true,
//    "helper_thread": false, "bucket_ends": [1048576, ...],
//    "compute": [{"images": 64, "input": 0.001, "update": 0.01, "stretches": [[seconds, final_elements], ...]}],
//    "crowding": 1.05, "jitter": [0.98, 1.0, 1.05], "within": {"latency": 1e-6, "bytes_per_second": 4e9},
//    "between": null, "misfit": 0.03}

#include "tutti/train/step_times.hpp"

#include "link_fit.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// What a step of so many images takes one rank; of `times`, the exchange does not count.
struct ComputeProfile {
  std::int64_t images = 0;
  StepTimes times;
};

struct ForecastInputs {
  std::string source;  // in words, printed with every forecast
  std::string model;
  int ranks_per_node = 1;
  bool overlaps = true;        // buckets are sent as soon as they are final; else after the backward pass
  bool helper_thread = false;  // messages move at any time, as they do on GPUs; else during compute between layers only
  std::vector<std::int64_t> bucket_ends;
  std::vector<ComputeProfile> compute;  // by images ascending, one at least
  double crowding = 1;  // compute when all ranks of a node compute, as it is given here, over that of a rank alone
  std::vector<double> jitter{1.0};  // a sample of a step's compute on one rank, over its median; ascending
  std::optional<Link> within;       // between ranks of a node; none: no two were measured
  std::optional<Link> between;      // between nodes
  // Of this model against what was measured where it was fitted, relative; none: nothing there could be compared.
  std::optional<double> misfit;
};

// As JSON. Throws an input error that names the file and the key.
std::string forecast_inputs_text(const ForecastInputs& inputs);
ForecastInputs parse_forecast_inputs(const std::string& text, const std::string& origin);
// The file may also be all that bench scaling --forecast has written.
ForecastInputs read_forecast_inputs(const std::string& path);

}  // namespace tutti
