#include "weight_average.hpp"

#include <algorithm>

namespace tutti {

// The first average is a copy. There is no power from the C library, so that the bits are the same everywhere.
double share_in_average(const AverageOptions& options, std::int64_t update, double done) {
  const std::int64_t every = std::max<std::int64_t>(options.lookahead, 1);
  if (options.decay == 0 || update % every != 0) return 0;
  if (update == every) return 1;
  double decay = 1;
  for (std::int64_t i = 0; i < every; ++i) decay *= options.decay;
  const double ramp = std::min(done, 1.0);
  return 1 - (options.lookahead > 0 ? decay * ramp * ramp * ramp : decay);
}

WeightAverage::WeightAverage(const AverageOptions& options, Backend& backend, const Tensor& weights)
    : options_(options),
      backend_(backend),
      weights_(weights),
      values_(backend.allocate(weights.bytes())),
      spare_(backend.allocate(weights.bytes())) {}

bool WeightAverage::add(Stream& stream, double share) {
  if (share == 0) return false;
  backend_.blend(stream, values(), weights_, static_cast<float>(share));
  if (options_.lookahead == 0) return false;
  backend_.copy(stream, weights_, values());
  return true;
}

void WeightAverage::swap(Stream& stream) {
  const Tensor spare = spare_.view(weights_.shape, ElementType::f32);
  backend_.copy(stream, spare, weights_);
  backend_.copy(stream, weights_, values());
  backend_.copy(stream, values(), spare);
}

}  // namespace tutti
