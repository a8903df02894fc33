#pragma once
// Messages between ranks: their size is checked, and their values are added to this rank's.

#include "tutti/backend/tensor.hpp"

#include "../arguments.hpp"
#include "../backoff.hpp"
#include "check.hpp"

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <vector>

namespace tutti::mpi {

enum class StarDirection { reduce_to_root, broadcast };

// A rank among the others, and what it counts there.
struct RankPlace {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::atomic<std::uint64_t>& bytes_sent;

  // The rank that is so many places behind this one, less than `size`.
  int rank_after(int places) const { return (rank + places) % size; }
};

struct Given {
  int rank;
  std::size_t bytes;
};
// Throws when what another rank gave is not of this size: the ranks enqueued different operations.
void require_bytes(const Given& given, std::size_t bytes, int rank);
// Likewise of the message that came.
void require_bytes(const MPI_Status& status, std::size_t bytes, int rank);

// to += from, f32 or i64; the same bits in every thread, whatever its treatment of denormal numbers.
void add(ElementType type, std::byte* to, const std::byte* from, std::size_t bytes);

// Returns when the request is complete.
void wait_for(MPI_Request& request, std::chrono::microseconds longest_sleep,
              std::source_location where = std::source_location::current());

// What one operation of a sum is to do, whichever way it goes: chunk c is summed in the order of the ranks, from rank c
// to rank c - 1, and ends at rank c - 1. The bits depend on the chunks and the number of ranks, and on nothing else.
struct SumWork {
  Tensor values;                     // f32 or i64; empty: nothing to add
  Tensor results;                    // may be `values`; empty: nothing to pass on
  std::vector<ElementRange> chunks;  // of both, one per rank
  // Called when the chunk that ends at this rank is whole. Null: nothing to do with it.
  std::function<void(const ElementRange& chunk)> then;

  const ElementRange& ending_at(int rank) const { return chunks[(static_cast<std::size_t>(rank) + 1) % chunks.size()]; }
};

}  // namespace tutti::mpi
