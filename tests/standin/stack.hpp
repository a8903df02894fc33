#pragma once
// The stacks on which the threads of a block take turns, and what the sanitizers must know of that.

#include <cstddef>
#include <cstdint>

namespace tutti::standin {

// The saved stack of a context.
struct Place {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* top = nullptr;
  void* fake_stack = nullptr;  // of the address sanitizer
  void* fiber = nullptr;       // of the thread sanitizer
};

class Stack {
 public:
  // Stacks begin at different offsets from their pages' ends, to avoid cache conflicts.
  explicit Stack(std::size_t index);
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack();

  // So that going to the place calls `begin`, which must not return.
  void begin_with(void (*begin)());
  // What was on it.
  void forget();

  Place place;

 private:
  std::size_t beginning_;
  std::byte* bottom_;
};

// The context that calls this, as one to come back to.
void mark_origin(Place& origin);
// `for_good`: `from` is not come back to.
void go(Place& from, const Place& to, bool for_good = false);
// The first call on a stack, which was gone to from `origin`.
void arrive(Place& origin);

// Under the address sanitizer, the blocks of a kernel share their __shared__ memory, whose bounds it knows only then.
bool shares_memory_of_blocks();
// The thread sanitizer does, so each thread of a block needs its own to be seen.
bool tells_stacks_apart();

// For the thread sanitizer, which sees neither how threads of a kernel wait for each other nor fences: what a thread
// did before a release of the address happens before what others do after an acquire.
void mark_release(const void* address);
void mark_acquire(const void* address);

}  // namespace tutti::standin
