#pragma once
// Counter-based random numbers (Philox 4x32-10): every number is a pure function of what it is for, never of rank,
// thread or time. The key is the run's seed; the counter says which draw, for which sample or element, in which epoch
// or step, for which purpose.

#include "tutti/base/digest.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace tutti {

struct RandomCounter {
  std::uint32_t draw = 0;
  std::uint32_t item = 0;     // sample or element
  std::uint32_t when = 0;     // epoch or step
  std::uint32_t purpose = 0;  // random_purpose("shuffle"), random_purpose("conv1/weight"), ...
};

constexpr std::uint32_t random_purpose(std::string_view name) { return static_cast<std::uint32_t>(hash64(name)); }

std::array<std::uint32_t, 4> philox(std::uint64_t key, const RandomCounter& counter);

// The draws for one (item, when, purpose), one after another.
class RandomSequence {
 public:
  RandomSequence(std::uint64_t seed, const RandomCounter& start) : seed_(seed), counter_(start) {}

  std::uint32_t next();
  // Uniform in 0..bound-1 without bias; bound is at least 1.
  std::uint32_t below(std::uint32_t bound);
  // Uniform integer in low..high, both included.
  std::int32_t between(std::int32_t low, std::int32_t high);
  // Uniform in [0, 1) with 53 random bits; never 1.
  double uniform();
  // Standard normal.
  double normal();
  // From the beta distribution whose parameters are both `shape`, above 0.
  double beta(double shape);

 private:
  std::uint64_t seed_;
  RandomCounter counter_;
  std::array<std::uint32_t, 4> words_{};
  int left_ = 0;
};

// values[i] becomes the first uniform() or normal() of the sequence of item start.item + i.
void first_uniforms(std::uint64_t seed, const RandomCounter& start, std::span<double> values);
void first_normals(std::uint64_t seed, const RandomCounter& start, std::span<double> values);

// Shuffles in place, uniformly over all orders.
void shuffle(std::span<std::int64_t> values, RandomSequence& random);

}  // namespace tutti
