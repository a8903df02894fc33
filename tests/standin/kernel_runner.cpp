#include "standin/kernel_runner.hpp"

#include "standin/finding.hpp"
#include "standin/random_source.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

uint3 threadIdx{};
uint3 blockIdx{};
dim3 blockDim{};
dim3 gridDim{};

// Saves the callee-saved registers on the current stack, and continues on the stack `to`.
extern "C" void tutti_standin_switch(void** from, void* to);
asm(R"(
.text
.type tutti_standin_switch, @function
tutti_standin_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size tutti_standin_switch, .-tutti_standin_switch
)");

// Null except under the address sanitizer, which must know the bounds of the stack.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* first, std::size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, std::size_t* bytes);
}

namespace tutti::standin {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kStackBytes = std::size_t{1} << 18;  // touched only as far as it is used

enum class State : unsigned char { unstarted, running, at_barrier, at_exchange, done };

// The saved stack of a context.
struct Place {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* top = nullptr;
  void* fake_stack = nullptr;
};

class Stack {
 public:
  // Stacks begin at different offsets from their pages' ends, to avoid cache conflicts.
  explicit Stack(std::size_t index)
      : beginning_(kStackBytes - index * 448 % 65536),
        bottom_(static_cast<std::byte*>(::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0))) {
    if (bottom_ == MAP_FAILED) throw std::bad_alloc();
    ::mprotect(bottom_, 4096, PROT_NONE);
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() { ::munmap(bottom_, kStackBytes); }

  // So that going to the place calls `begin`, which must not return.
  void begin_with(void (*begin)()) {
    auto* const words = reinterpret_cast<void**>(bottom_ + beginning_);
    if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(words - 512, 512 * sizeof(void*));
    std::memset(words - 16, 0, 16 * sizeof(void*));  // six registers among them
    words[-2] = reinterpret_cast<void*>(begin);
    place = {bottom_, kStackBytes, words - 8, nullptr};
  }
  void forget() {
    if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(bottom_, kStackBytes);
  }

  Place place;

 private:
  std::size_t beginning_;
  std::byte* bottom_;
};

void go(Place& from, const Place& to, bool for_good = false) {
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack, to.bottom, to.bytes);
  }
  tutti_standin_switch(&from.top, to.top);
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
}

struct Thread {
  State state = State::unstarted;
  Stack* stack = nullptr;
  std::source_location where;
  unsigned exchanges = 0;
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

class BlockRunner {
 public:
  void run(const KernelCall& call, std::uint64_t seed);
  void wait_at_barrier(const std::source_location& where);
  const std::array<std::uint64_t, kWarp>& exchange(std::uint64_t word, const std::source_location& where);

 private:
  void take_back_stacks();
  void run_block(unsigned block);
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
  std::vector<Stack*> free_stacks_;
  Stack* current_ = nullptr;
  Place main_;
  std::exception_ptr thrown_;

  std::array<Thread, kMostThreads> threads_;
  std::array<Warp, kMostThreads / kWarp> warps_;
  std::vector<unsigned> ready_;
  unsigned started_ = 0;
  unsigned done_ = 0;
  unsigned at_barrier_ = 0;
  std::source_location barrier_;
};

BlockRunner runner;

void BlockRunner::run(const KernelCall& call, std::uint64_t seed) {
  call_ = call;
  random_ = RandomSource(seed);
  gridDim = call.blocks;
  blockDim = dim3(call.threads, 1, 1);
  if (free_stacks_.size() < stacks_.size()) take_back_stacks();
  const unsigned blocks = call.blocks.x * call.blocks.y;
  const Order order(blocks, random_);
  for (unsigned i = 0; i < blocks; ++i) run_block(order.at(i));
}

// Resets the state after an abandoned kernel.
void BlockRunner::take_back_stacks() {
  free_stacks_.clear();
  for (const auto& stack : stacks_) {
    stack->forget();
    free_stacks_.push_back(stack.get());
  }
}

void BlockRunner::run_block(unsigned block) {
  blockIdx = {block % call_.blocks.x, block / call_.blocks.x, 0};
  start_order_ = Order(call_.threads, random_);
  started_ = done_ = at_barrier_ = 0;
  for (Warp& warp : warps_) warp.waiting = 0;
  ready_.clear();
  while (started_ < call_.threads) {
    if (free_stacks_.empty()) {
      stacks_.push_back(std::make_unique<Stack>(stacks_.size()));
      free_stacks_.push_back(stacks_.back().get());
    }
    Stack& stack = *free_stacks_.back();
    free_stacks_.pop_back();
    stack.begin_with(&BlockRunner::stack_main);
    enter(stack);
  }
  while (!ready_.empty()) enter(*threads_[take_ready()].stack);
  if (done_ < call_.threads) report_stuck();
}

void BlockRunner::start_threads() {
  while (started_ < call_.threads) {
    const unsigned thread = start_order_.at(started_++);
    threads_[thread] = {.state = State::running, .stack = current_, .where = {}, .exchanges = 0};
    threadIdx = {thread, 0, 0};
    call_.body(call_.arguments);
    threads_[thread].state = State::done;
    ++done_;
  }
}

void BlockRunner::stack_main() {
  BlockRunner& self = runner;
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(nullptr, &self.main_.bottom, &self.main_.bytes);
  }
  try {
    self.start_threads();
  } catch (...) {
    self.thrown_ = std::current_exception();
  }
  self.free_stacks_.push_back(self.current_);
  go(self.current_->place, self.main_, true);
}

unsigned BlockRunner::take_ready() {
  const unsigned thread = ready_.back();
  ready_.pop_back();
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
  if (ready_.empty() || started_ < call_.threads) return go(own.place, main_);
  current_ = threads_[take_ready()].stack;
  if (current_ != &own) go(own.place, current_->place);
}

void BlockRunner::release(unsigned first, unsigned count) {
  const Order order(count, random_);
  const std::size_t before = ready_.size();
  ready_.resize(before + count);
  for (unsigned i = 0; i < count; ++i) ready_[before + i] = first + order.at(i);
}

void BlockRunner::wait_at_barrier(const std::source_location& where) {
  if (at_barrier_ == 0) barrier_ = where;
  refuse_other_place(where, barrier_);
  if (++at_barrier_ == call_.threads) {
    at_barrier_ = 0;
    release(0, call_.threads);
  }
  suspend(State::at_barrier, where);
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

void run_kernel(const KernelCall& call, std::uint64_t seed) { runner.run(call, seed); }

void wait_at_barrier(const std::source_location& where) { runner.wait_at_barrier(where); }

std::uint64_t exchange_words(std::uint64_t word, Partner partner, unsigned mask, const std::source_location& where) {
  const unsigned lane = threadIdx.x % kWarp;
  const auto& words = runner.exchange(word, where);
  const unsigned from = partner == Partner::exclusive_or ? lane ^ mask : lane + mask;
  return words[from < kWarp ? from : lane];
}

std::uint32_t exchange_votes(bool vote, const std::source_location& where) {
  const auto& words = runner.exchange(vote ? 1 : 0, where);
  std::uint32_t votes = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) votes |= static_cast<std::uint32_t>(words[lane]) << lane;
  return votes;
}

}  // namespace tutti::standin
