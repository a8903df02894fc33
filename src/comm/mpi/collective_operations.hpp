#pragma once
// The all_reduce algorithms, each a state machine that never waits for other ranks. All of them add in the ring's
// order, and so give the same bits.

#include "tutti/backend/tensor.hpp"

#include "../arguments.hpp"
#include "../peer_memory.hpp"
#include "mpi_calls.hpp"
#include "operation_queue.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tutti::mpi {

enum class RootDirection { reduce_to_root, broadcast };

// This rank in an MPI communicator, and its counter of sent bytes.
struct MpiRank {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::atomic<std::uint64_t>& bytes_sent;

  // The rank at this distance after this one. `distance` must be less than `size`.
  int rank_after(int distance) const { return (rank + distance) % size; }
};

struct RankBytes {
  int rank;
  std::size_t bytes;
};
// Throws unless the other rank's tensor has this many bytes; otherwise the ranks enqueued different operations.
void require_bytes(const RankBytes& other, std::size_t bytes, int rank);
// The same for a received message.
void require_bytes(const MPI_Status& status, std::size_t bytes, int rank);

// to += from, f32 or i64. Gives the same bits in every thread, whatever its mode for denormal numbers.
void add(ElementType type, std::byte* to, const std::byte* from, std::size_t bytes);

// The work of one operation, for any algorithm. Chunk c is added in rank order from rank c to rank c - 1 (modulo the
// number of ranks), and rank c - 1 gets the sum. The bits depend only on the values, the chunks and the number of
// ranks.
struct Reduction {
  Tensor values;                     // f32 or i64; empty: no reduce_scatter
  Tensor results;                    // may be `values`; empty: no all_gather
  std::vector<ElementRange> chunks;  // of both tensors, one per rank
  // Called once this rank's chunk holds the sum. Null: no work.
  std::function<void(const ElementRange& chunk)> transform_shard;

  const ElementRange& chunk_reduced_at(int rank) const {
    return chunks[(static_cast<std::size_t>(rank) + 1) % chunks.size()];
  }
};

// Every rank sends its values of each chunk to the rank that reduces the chunk, adds the values that it receives, and
// sends the result to all. This takes two steps for any number of ranks, and suits small sizes, for which the latency
// of a ring's many steps dominates.
class DirectOperation final : public Operation {
 public:
  // `tag` distinguishes the operations that can be in flight.
  DirectOperation(const MpiRank& self, Reduction reduction, int tag);

  void start() override;
  State advance() override;

 private:
  enum class Stage { adding, sending_results, done };

  void send_values();
  void add_values();
  void send_results();
  void post_send(int rank, const Tensor& piece);
  void post_receive(int rank, std::byte* to, std::size_t bytes);

  MpiRank self_;
  Reduction reduction_;
  int tag_;

  Stage stage_ = Stage::adding;
  std::unique_ptr<std::byte[]> received_;  // other ranks' values of this rank's chunk, beginning with the next rank
  std::vector<MPI_Request> requests_;
  std::vector<std::size_t> awaited_bytes_;  // by request; 0 for a send
};

// A ring. In up to 2 * (ranks - 1) steps every rank sends a chunk to the next rank and receives one from the previous
// rank: first partial sums (reduce_scatter), then results (all_gather).
class RingOperation final : public Operation {
 public:
  // `tag` distinguishes the operations that can be in flight.
  RingOperation(const MpiRank& self, Reduction reduction, int tag);

  void start() override;
  State advance() override;

 private:
  struct Chunk {
    std::byte* data;
    std::size_t bytes;
  };

  bool adding() const { return step_ < self_.size - 1; }
  Chunk chunk(int index) const;
  Chunk outgoing() const { return chunk(self_.rank - step_); }
  Chunk incoming() const { return chunk(self_.rank - step_ - 1); }
  void begin_step();
  void post();
  bool step_is_done();
  void on_received(const MPI_Status& status);

  MpiRank self_;
  Reduction reduction_;
  int tag_;

  std::unique_ptr<std::byte[]> scratch_;
  int step_;
  int end_;
  bool received_ = false;
  MPI_Request sending_ = MPI_REQUEST_NULL;
  MPI_Request receiving_ = MPI_REQUEST_NULL;
};

// A reduction to rank 0 or a broadcast from it, with direct messages to one other rank at a time. A reduction adds in
// rank order.
class RootOperation final : public Operation {
 public:
  // `tag` distinguishes the operations that can be in flight.
  RootOperation(const MpiRank& self, const Tensor& values, RootDirection direction, int tag);

  void start() override;
  State advance() override;

 private:
  bool first() const { return self_.rank == 0; }
  bool receiving() const { return first() == (direction_ == RootDirection::reduce_to_root); }
  void post();
  void on_received(const MPI_Status& status);

  MpiRank self_;
  Tensor values_;
  RootDirection direction_;
  int tag_;

  std::unique_ptr<std::byte[]> scratch_;
  int peer_;
  int last_peer_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// An operation in shared memory. Once all ranks have published their tensors, each rank adds its chunk directly from
// the memory of the others and writes the result into it. This takes two synchronisations and no intermediate copies.
class WindowOperation final : public Operation {
 public:
  // All pieces use the same tensors, which must be in `peer_memory`. `number` counts the operations in it from 1,
  // equally on all ranks; fewer than PeerMemory::kSlots may be in flight.
  WindowOperation(PeerMemory& peer_memory, const MpiRank& self, std::vector<Reduction> pieces, std::uint64_t number);

  void start() override;
  // Processes one piece per call.
  State advance() override;

 private:
  // Whether all ranks have set this flag of their slots for this operation.
  bool all_ranks_reached(std::atomic<std::uint64_t> OperationSlot::*flag);
  void look_up_memory();
  void run_piece(const Reduction& piece);
  void add_values(const ElementRange& range);
  void send_results(const ElementRange& range);
  void count_bytes(const Reduction& piece);

  PeerMemory& peer_memory_;
  MpiRank self_;
  std::vector<Reduction> pieces_;
  std::uint64_t number_;

  std::size_t next_piece_ = 0;
  int seen_ = 0;  // ranks whose current flag has been seen
  // The addresses of the tensors, by rank.
  std::vector<std::byte*> values_;
  std::vector<std::byte*> results_;
  std::unique_ptr<std::byte[]> partial_sums_;
};

}  // namespace tutti::mpi
