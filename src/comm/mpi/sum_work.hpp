#pragma once
// What one operation of a sum is to do, whichever way it goes: chunk c is summed in the order of the ranks, from rank c
// to rank c - 1, and ends at rank c - 1. The bits depend on the chunks and the number of ranks, and on nothing else.

#include "tutti/backend/tensor.hpp"

#include "../arguments.hpp"

#include <functional>
#include <vector>

namespace tutti::mpi {

struct SumWork {
  Tensor values;                     // f32 or i64; empty: nothing to add
  Tensor results;                    // may be `values`; empty: nothing to pass on
  std::vector<ElementRange> chunks;  // of both, one per rank
  // Called when the chunk that ends at this rank is whole. Null: nothing to do with it.
  std::function<void(const ElementRange& chunk)> then;

  const ElementRange& ending_at(int rank) const { return chunks[(static_cast<std::size_t>(rank) + 1) % chunks.size()]; }
};

}  // namespace tutti::mpi
