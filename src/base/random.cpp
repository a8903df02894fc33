#include "tutti/base/random.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/portable_math.hpp"

#include "wide_loops.hpp"

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace tutti {
namespace {

// The logarithm of a gamma variate, by Marsaglia and Tsang's method. For a shape below 1, it is a variate of shape + 1
// times a power of a uniform one.
double log_gamma_variate(RandomSequence& random, double shape) {
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
  while (true) {
    const double x = random.normal();
    const double root = 1 + x / std::sqrt(9 * d);
    if (root <= 0) continue;
    const double log_v = 3 * portable_log(root);
    if (portable_log(1 - random.uniform()) >= x * x / 2 + d * (1 - root * root * root + log_v)) continue;
    const double log_variate = portable_log(d) + log_v;
    return shape < 1 ? log_variate + portable_log(1 - random.uniform()) / shape : log_variate;
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t key, const RandomCounter& counter) {
  PhiloxKeys keys(key);
  std::array<std::uint32_t, 4> x{counter.draw, counter.item, counter.when, counter.purpose};
  for (int round = 0; round < kPhiloxRounds; ++round, keys.to_next_round()) philox_round(keys, x[0], x[1], x[2], x[3]);
  return x;
}

std::uint32_t RandomSequence::next() {
  if (left_ == 0) {
    words_ = philox(seed_, counter_);
    ++counter_.draw;
    left_ = 4;
  }
  return words_[static_cast<std::size_t>(4 - left_--)];
}

std::uint32_t RandomSequence::below(std::uint32_t bound) {
  std::uint64_t product = std::uint64_t{next()} * bound;
  if (static_cast<std::uint32_t>(product) < bound) {
    const std::uint32_t reject_below = (0u - bound) % bound;
    while (static_cast<std::uint32_t>(product) < reject_below) product = std::uint64_t{next()} * bound;
  }
  return static_cast<std::uint32_t>(product >> 32);
}

std::int32_t RandomSequence::between(std::int32_t low, std::int32_t high) {
  const auto count = static_cast<std::uint32_t>(std::int64_t{high} - low + 1);
  return static_cast<std::int32_t>(low + std::int64_t{below(count)});
}

double RandomSequence::uniform() {
  const std::uint64_t high = next() >> 5;
  const std::uint64_t low = next() >> 6;
  return static_cast<double>(high << 26 | low) * 0x1p-53;
}

double RandomSequence::normal() {
  const std::uint64_t high = next() >> 6;
  const std::uint64_t low = next() >> 6;
  return portable_normal_quantile((static_cast<double>(high << 26 | low) + 0.5) * 0x1p-52);
}

double RandomSequence::beta(double shape) {
  const double one = log_gamma_variate(*this, shape);
  return 1 / (1 + portable_exp(log_gamma_variate(*this, shape) - one));
}

void shuffle(std::span<std::int64_t> values, RandomSequence& random) {
  if (values.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorSource::input, "more than 4,294,967,295 samples cannot be shuffled");
  }
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[random.below(static_cast<std::uint32_t>(left))]);
  }
}

void first_uniforms(std::uint64_t seed, const RandomCounter& start, std::span<double> values) {
  draw(seed, start, 5, values);
  for (double& value : values) value *= 0x1p-53;
}

void first_normals(std::uint64_t seed, const RandomCounter& start, std::span<double> values) {
  draw(seed, start, 6, values);
  for (double& value : values) value = portable_normal_quantile((value + 0.5) * 0x1p-52);
}

}  // namespace tutti
