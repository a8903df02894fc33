#include "standin/kernel_runner.hpp"

#include "standin/finding.hpp"
#include "standin/random_source.hpp"
#include "standin/stack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace tutti::standin {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;

enum class State : unsigned char { unstarted, running, at_barrier, at_exchange, done };

struct Thread {
  State state = State::unstarted;
  Stack* stack = nullptr;
  std::source_location where;
  unsigned exchanges = 0;
  bool fenced = false;
  void* atomic = nullptr;  // the address of the last atomic operation
};

struct Warp {
  unsigned waiting = 0;
  std::source_location where;
  std::array<std::array<std::uint64_t, kWarp>, 2> words{};  // of even and odd exchanges: slow lanes still read the last
};

// Of 0 .. count - 1: a rotation, forwards or backwards.
class Order {
 public:
  Order() = default;
  Order(unsigned count, RandomSource& random)
      : count_(count), turn_(random.below(count)), backwards_(random.below(2) == 1) {}
  unsigned at(unsigned position) const {
    const unsigned sum = position + turn_;
    const unsigned turned = sum < count_ ? sum : sum - count_;
    return backwards_ ? count_ - 1 - turned : turned;
  }

 private:
  unsigned count_ = 1;
  unsigned turn_ = 0;
  bool backwards_ = false;
};

// Threads that wait together wait at the same call.
void refuse_other_place(const std::source_location& where, const std::source_location& other) {
  if (other.line() == where.line()) return;
  throw Finding(fmt::format("threads that must wait together do so in different places: {}:{} and {}:{}",
                            where.file_name(), where.line(), other.file_name(), other.line()));
}

// The share of one thread of the host in the blocks of a kernel.
struct BlockShare {
  Order order;
  unsigned first = 0;
  unsigned step = 1;
};

class BlockRunner {
 public:
  // Returns what it throws.
  std::exception_ptr run(const KernelCall& call, const BlockShare& share, std::uint64_t seed);
  std::memory_order begin_atomic(void* address);
  void fence();
  void wait_at_barrier(const std::source_location& where);
  const std::array<std::uint64_t, kWarp>& exchange(std::uint64_t word, const std::source_location& where);

 private:
  void run_blocks(const BlockShare& share);
  void run_block(unsigned block);
  void let_others_go_first();
  void start_threads();  // on the stack of a thread, until one blocks
  unsigned take_ready();
  void suspend(State state, const std::source_location& where);
  void enter(Stack& stack);
  void release(unsigned first, unsigned count);
  [[noreturn]] void report_stuck() const;
  static void stack_main();

  KernelCall call_;
  RandomSource random_{0};
  Order start_order_;

  std::vector<std::unique_ptr<Stack>> stacks_;
  Stack* current_ = nullptr;
  Place main_;
  std::exception_ptr thrown_;

  std::array<Thread, kMostThreads> threads_;
  std::array<Warp, kMostThreads / kWarp> warps_;
  std::array<unsigned, kMostThreads> ready_;
  unsigned ready_count_ = 0;
  unsigned started_ = 0;
  unsigned done_ = 0;
  unsigned at_barrier_ = 0;
  std::source_location barrier_;
  unsigned barriers_ = 0;
  std::array<char, 2> of_barriers_;  // addresses of even and odd barriers
  bool beside_others_ = false;
};

// That of this thread of the host.
constinit thread_local BlockRunner* runner = nullptr;

std::exception_ptr BlockRunner::run(const KernelCall& call, const BlockShare& share, std::uint64_t seed) {
  runner = this;
  call_ = call;
  random_ = RandomSource(seed);
  beside_others_ = share.step > 1;
  gridDim = call.blocks;
  blockDim = dim3(call.threads, 1, 1);
  mark_origin(main_);
  std::exception_ptr thrown;
  try {
    run_blocks(share);
  } catch (...) {
    thrown = std::current_exception();
    for (const auto& stack : stacks_) stack->forget();  // threads that were abandoned
  }
  mark_acquire(&done_);
  return thrown;
}

void BlockRunner::run_blocks(const BlockShare& share) {
  for (unsigned i = share.first; i < call_.blocks.x * call_.blocks.y; i += share.step) run_block(share.order.at(i));
}

void BlockRunner::run_block(unsigned block) {
  // After the block before it, whose __shared__ memory it takes over: only blocks of other runners are beside it.
  mark_acquire(&done_);
  mark_release(&call_);
  blockIdx = {block % call_.blocks.x, block / call_.blocks.x, 0};
  start_order_ = Order(call_.threads, random_);
  started_ = done_ = at_barrier_ = ready_count_ = 0;
  for (Warp& warp : warps_) warp.waiting = 0;
  for (std::size_t used = 0; started_ < call_.threads; ++used) {
    if (used == stacks_.size()) stacks_.push_back(std::make_unique<Stack>(used));
    stacks_[used]->begin_with(&BlockRunner::stack_main);
    enter(*stacks_[used]);
  }
  while (ready_count_ > 0) enter(*threads_[take_ready()].stack);
  if (done_ < call_.threads) report_stuck();
}

void BlockRunner::start_threads() {
  do {
    const unsigned thread = start_order_.at(started_++);
    threads_[thread] = {.state = State::running, .stack = current_, .where = {}};
    threadIdx = {thread, 0, 0};
    call_.body(call_.arguments);
    threads_[thread].state = State::done;
    ++done_;
  } while (started_ < call_.threads && !tells_stacks_apart());
}

void BlockRunner::stack_main() {
  BlockRunner& self = *runner;
  arrive(self.main_);
  mark_acquire(&self.call_);
  try {
    self.start_threads();
  } catch (...) {
    self.thrown_ = std::current_exception();
  }
  mark_release(&self.done_);
  go(self.current_->place, self.main_, true);
}

unsigned BlockRunner::take_ready() {
  const unsigned thread = ready_[--ready_count_];
  threads_[thread].state = State::running;
  threadIdx = {thread, 0, 0};
  return thread;
}

void BlockRunner::enter(Stack& stack) {
  current_ = &stack;
  go(main_, stack.place);
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void BlockRunner::suspend(State state, const std::source_location& where) {
  const unsigned thread = threadIdx.x;
  threads_[thread].state = state;
  threads_[thread].where = where;
  Stack& own = *current_;
  if (ready_count_ == 0 || started_ < call_.threads) return go(own.place, main_);
  current_ = threads_[take_ready()].stack;
  if (current_ != &own) go(own.place, current_->place);
}

void BlockRunner::release(unsigned first, unsigned count) {
  const Order order(count, random_);
  for (unsigned i = 0; i < count; ++i) ready_[ready_count_++] = first + order.at(i);
}

void BlockRunner::wait_at_barrier(const std::source_location& where) {
  if (at_barrier_ == 0) barrier_ = where;
  refuse_other_place(where, barrier_);
  const char* const barrier = &of_barriers_[barriers_ % 2];
  mark_release(barrier);
  if (++at_barrier_ == call_.threads) {
    at_barrier_ = 0;
    ++barriers_;
    let_others_go_first();
    release(0, call_.threads);
  }
  suspend(State::at_barrier, where);
  mark_acquire(barrier);
}

// Sometimes.
void BlockRunner::let_others_go_first() {
  if (beside_others_ && random_.below(4) == 0) std::this_thread::yield();
}

// Atomic operations are relaxed, as on a device: a fence before one releases what came before the fence, and a fence
// after it acquires what others released. The thread sanitizer knows no fences, so there the operation releases (with
// what came between the fence and it), and the fence acquires from the thread's last one.
std::memory_order BlockRunner::begin_atomic(void* address) {
  let_others_go_first();
  Thread& thread = threads_[threadIdx.x];
  thread.atomic = address;
  return thread.fenced ? std::memory_order_release : std::memory_order_relaxed;
}

void BlockRunner::fence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Thread& thread = threads_[threadIdx.x];
  thread.fenced = true;
  if (thread.atomic != nullptr) mark_acquire(thread.atomic);
  let_others_go_first();
}

const std::array<std::uint64_t, kWarp>& BlockRunner::exchange(std::uint64_t word, const std::source_location& where) {
  const unsigned thread = threadIdx.x;
  Warp& warp = warps_[thread / kWarp];
  auto& words = warp.words[threads_[thread].exchanges++ % 2];
  words[thread % kWarp] = word;
  if (warp.waiting == 0) warp.where = where;
  refuse_other_place(where, warp.where);
  if (++warp.waiting == kWarp) {
    warp.waiting = 0;
    release(thread / kWarp * kWarp, kWarp);
  }
  suspend(State::at_exchange, where);
  return words;
}

void BlockRunner::report_stuck() const {
  std::string text =
      fmt::format("block {} of a kernel is stuck: {} of {} threads have left it", blockIdx.x, done_, call_.threads);
  for (const State state : {State::at_barrier, State::at_exchange}) {
    for (unsigned thread = 0; thread < call_.threads; ++thread) {
      if (threads_[thread].state != state) continue;
      text += fmt::format(", thread {} waits at {}:{} ({})", thread, threads_[thread].where.file_name(),
                          threads_[thread].where.line(),
                          state == State::at_barrier ? "barrier" : "exchange within its warp");
      break;
    }
  }
  throw Finding(text);
}

}  // namespace

void run_kernel(const KernelCall& call, std::uint64_t seed) {
  static std::vector<std::unique_ptr<BlockRunner>> runners;
  const unsigned blocks = call.blocks.x * call.blocks.y;
  const unsigned count = shares_memory_of_blocks() ? 1 : std::min(call.host_threads, blocks);
  while (runners.size() < count) runners.push_back(std::make_unique<BlockRunner>());
  RandomSource random(seed);
  const Order order(blocks, random);
  std::vector<std::exception_ptr> thrown(count);
  const auto run = [&](unsigned thread, std::uint64_t seed_of_thread) {
    thrown[thread] = runners[thread]->run(call, {order, thread, count}, seed_of_thread);
  };
  {
    std::vector<std::jthread> others;
    for (unsigned thread = 1; thread < count; ++thread) others.emplace_back(run, thread, random.next());
    run(0, random.next());
  }
  for (const std::exception_ptr& each : thrown) {
    if (each) std::rethrow_exception(each);
  }
}

std::memory_order begin_atomic(void* address) { return runner->begin_atomic(address); }

void fence() { runner->fence(); }

void wait_at_barrier(const std::source_location& where) { runner->wait_at_barrier(where); }

std::uint64_t exchange_words(std::uint64_t word, Partner partner, unsigned mask, const std::source_location& where) {
  const unsigned lane = threadIdx.x % kWarp;
  const auto& words = runner->exchange(word, where);
  const unsigned from = partner == Partner::exclusive_or ? lane ^ mask : lane + mask;
  return words[from < kWarp ? from : lane];
}

std::uint32_t exchange_votes(bool vote, const std::source_location& where) {
  const auto& words = runner->exchange(vote ? 1 : 0, where);
  std::uint32_t votes = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) votes |= static_cast<std::uint32_t>(words[lane]) << lane;
  return votes;
}

}  // namespace tutti::standin
