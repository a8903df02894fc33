#pragma once
// GPUs that a host has and a run will not use, and why.

#include "tutti/backend/cuda_library.hpp"

#include "finding.hpp"

#include <string>

namespace tutti {

struct CardFacts {
  std::string device = "auto";  // as asked for
  std::string note{};           // why ranks left free to choose came to processors; empty: they did not
  bool has_card = false;
  bool has_driver = false;
  CudaInventory inventory{};
};
Findings judge_cards(const CardFacts& facts);

}  // namespace tutti
