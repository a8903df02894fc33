#pragma once
// The ways in which an all_reduce is carried out, each a state machine that never waits. All of them add in the ring's
// order, and so give the same bits.

#include "tutti/backend/tensor.hpp"

#include "../arguments.hpp"
#include "../window.hpp"
#include "native.hpp"
#include "operation_queue.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tutti::mpi {

enum class StarDirection { reduce_to_root, broadcast };

// A rank among the others, and what it counts there.
struct RankPosition {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::atomic<std::uint64_t>& bytes_sent;

  // The rank that many places after this one, fewer than `size`.
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

// Every rank sends its values of each chunk to the rank where that chunk ends, adds up what it receives, and sends the
// result to all. Two messages one after the other for any number of ranks: for sums so short that a ring's many steps
// take longer than their bytes.
class DirectOperation final : public Operation {
 public:
  // `tag` distinguishes the operations that can be under way at once.
  DirectOperation(const RankPosition& place, SumWork work, int tag);

  void start() override;
  State advance() override;

 private:
  enum class Stage { adding, passing_on, over };

  void send_values();
  void add_up();
  void pass_on();
  void post_send(int rank, const Tensor& part);
  void post_receive(int rank, std::byte* to, std::size_t bytes);

  RankPosition place_;
  SumWork work_;
  int tag_;

  Stage stage_ = Stage::adding;
  std::unique_ptr<std::byte[]> received_;  // values of the chunk that ends here, by rank, from the next one on
  std::vector<MPI_Request> requests_;
  std::vector<std::size_t> awaited_bytes_;  // by request; of a sending: 0
};

// One ring over chunks. In up to 2 * (ranks - 1) steps every rank sends a chunk to the next rank and receives one from
// the rank before: first partial sums go around, then the whole ones.
class RingOperation final : public Operation {
 public:
  // `tag` distinguishes the operations that can be under way at once.
  RingOperation(const RankPosition& place, SumWork work, int tag);

  void start() override;
  State advance() override;

 private:
  struct Chunk {
    std::byte* data;
    std::size_t bytes;
  };

  bool adding() const { return step_ < place_.size - 1; }
  Chunk chunk(int number) const;
  Chunk outgoing() const { return chunk(place_.rank - step_); }
  Chunk incoming() const { return chunk(place_.rank - step_ - 1); }
  void begin_step();
  void post();
  bool step_is_over();
  void take_in(const MPI_Status& status);

  RankPosition place_;
  SumWork work_;
  int tag_;

  std::unique_ptr<std::byte[]> scratch_;
  int step_;
  int end_;
  bool received_ = false;
  MPI_Request sending_ = MPI_REQUEST_NULL;
  MPI_Request receiving_ = MPI_REQUEST_NULL;
};

// Rank 0 and one other rank after the other: either rank 0 adds their values to its own, in the order of the ranks, or
// it sends its own to them.
class StarOperation final : public Operation {
 public:
  // `tag` distinguishes the operations that can be under way at once.
  StarOperation(const RankPosition& place, const Tensor& values, StarDirection direction, int tag);

  void start() override;
  State advance() override;

 private:
  bool first() const { return place_.rank == 0; }
  bool receiving() const { return first() == (direction_ == StarDirection::reduce_to_root); }
  void post();
  void take_in(const MPI_Status& status);

  RankPosition place_;
  Tensor values_;
  StarDirection direction_;
  int tag_;

  std::unique_ptr<std::byte[]> scratch_;
  int peer_;
  int last_peer_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// A sum in memory that all ranks see: once all ranks have posted their values, each adds up the chunks that end at it
// where they are, and writes the result into the memory of all. Two synchronisations, and no copies in between.
class WindowOperation final : public Operation {
 public:
  // All pieces are of the same tensors, which lie in the window. `number` counts the window's operations from 1, alike
  // on all ranks; fewer than Window::kPosts are going at once.
  WindowOperation(Window& window, const RankPosition& place, std::vector<SumWork> pieces, std::uint64_t number);

  void start() override;
  // Does one piece at a time.
  State advance() override;

 private:
  // Whether all ranks have set this word of their posts.
  bool have_all(std::atomic<std::uint64_t> Post::*word);
  void look_up_memory();
  void work_on(const SumWork& piece);
  void add_up(const ElementRange& range);
  void pass_on(const ElementRange& range);
  void count_bytes(const SumWork& piece);

  Window& window_;
  RankPosition place_;
  std::vector<SumWork> pieces_;
  std::uint64_t number_;

  std::size_t next_piece_ = 0;
  int seen_ = 0;  // ranks that have set the word that is looked at
  // By rank, where the tensors begin.
  std::vector<std::byte*> values_;
  std::vector<std::byte*> results_;
  std::unique_ptr<std::byte[]> partial_sums_;
};

}  // namespace tutti::mpi
