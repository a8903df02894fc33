#pragma once
// The all_reduce algorithms, each a state machine that never waits for other ranks. All of them add in the ring's
// order, and so give the same bits.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include "../arguments.hpp"
#include "../peer_memory.hpp"
#include "mpi_calls.hpp"
#include "operation_queue.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tutti::mpi {

enum class RootDirection { reduce_to_root, broadcast };

// This rank in an MPI communicator. Operations borrow it.
struct MpiRank {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::atomic<std::uint64_t> bytes_sent = 0;
  std::uint32_t operations = 0;  // so far

  // The rank at this distance after this one. `distance` must be less than `size`.
  int rank_after(int distance) const { return (rank + distance) % size; }
  // Distinguishes the operations that can be in flight. All MPI libraries support tags up to 32767.
  int next_tag() { return static_cast<int>(operations++ % 1024); }
};

// The work of one operation, for any algorithm. Chunk c is added in rank order from rank c to rank c - 1 (modulo the
// number of ranks), and rank c - 1 gets the sum. The bits depend only on the values, the chunks and the number of
// ranks.
struct Reduction {
  Tensor values;   // f32, bf16, i32 or i64; empty: no reduce_scatter
  Tensor results;  // may be `values`; empty: no all_gather
  // As in ReduceScatterGather, for the chunk whose sum this rank gets.
  std::function<void(Stream& stream, std::int64_t begin, std::int64_t end)> transform_shard;
  std::vector<IndexRange> chunks;  // of both tensors, one per rank

  const IndexRange& chunk_reduced_at(int rank) const {
    return chunks[(static_cast<std::size_t>(rank) + 1) % chunks.size()];
  }
};

// Every rank sends its values of each chunk to the rank that reduces the chunk, adds the values that it receives, and
// sends the result to all. This takes two steps for any number of ranks, and suits small sizes, for which the latency
// of a ring's many steps dominates.
std::unique_ptr<Operation> make_direct_operation(MpiRank& self, Reduction reduction);
// A ring. In up to 2 * (ranks - 1) steps every rank sends a chunk to the next rank and receives one from the previous
// rank: first partial sums (reduce_scatter), then results (all_gather).
std::unique_ptr<Operation> make_ring_operation(MpiRank& self, Reduction reduction);
// A reduction to rank 0 or a broadcast from it, with direct messages to one other rank at a time. A reduction adds in
// rank order.
std::unique_ptr<Operation> make_root_operation(MpiRank& self, const Tensor& values, RootDirection direction);
// An operation in shared memory. Once all ranks have published their tensors, each rank adds its chunk directly from
// the memory of the others and writes the result into it. This takes two synchronizations and no intermediate copies.
// All pieces use the same tensors, which must be in `peer_memory`. `number` counts the operations in it from 1,
// equally on all ranks; fewer than PeerMemory::kSlots may be in flight.
std::unique_ptr<Operation> make_window_operation(MpiRank& self, PeerMemory& peer_memory, std::vector<Reduction> pieces,
                                                 std::uint64_t number);

}  // namespace tutti::mpi
