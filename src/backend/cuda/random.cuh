#pragma once
// The numbers of base/random.hpp on a GPU: the same bits for the same seed and counter.

#include "tutti/base/random.hpp"

#include "kernel.cuh"

namespace tutti::cuda {

struct RandomWords {
  std::uint32_t first;
  std::uint32_t second;
  std::uint32_t third;
  std::uint32_t fourth;

  __device__ std::uint32_t word(unsigned index) const {
    if (index < 2) return index == 0 ? first : second;
    return index == 2 ? third : fourth;
  }
};

__device__ inline RandomWords random_words(std::uint64_t seed, const RandomCounter& counter) {
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  RandomWords x{counter.draw, counter.item, counter.when, counter.purpose};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * x.first;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * x.third;
    x = {static_cast<std::uint32_t>(product1 >> 32) ^ x.second ^ key0, static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ x.fourth ^ key1, static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

}  // namespace tutti::cuda
