#pragma once
// A sum in memory that all ranks see, as a state machine that never waits for others: once all ranks have posted their
// values, each adds up the chunks that end at it where they lie, in the ring's order, and writes what comes of them
// into the memory of all. Two meetings, and no copies in between.

#include "../window.hpp"
#include "message.hpp"
#include "operation_queue.hpp"
#include "sum_work.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tutti::mpi {

class WindowOperation final : public Operation {
 public:
  // All pieces are of the same tensors, which lie in the window. `number` counts the window's operations from 1, alike
  // on all ranks; fewer than Window::kPosts are going at once.
  WindowOperation(Window& window, const RankPlace& place, std::vector<SumWork> pieces, std::uint64_t number);

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
  RankPlace place_;
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
