#include "standin/stack.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

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

// Null except under the address sanitizer, which must know the bounds of the stack, and the thread sanitizer.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* first, std::size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, std::size_t* bytes);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
}

namespace tutti::standin {
namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 18;  // touched only as far as it is used

}  // namespace

Stack::Stack(std::size_t index)
    : beginning_(kStackBytes - index * 448 % 65536),
      bottom_(static_cast<std::byte*>(::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0))) {
  if (bottom_ == MAP_FAILED) throw std::bad_alloc();
  ::mprotect(bottom_, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), PROT_NONE);
  if (__tsan_create_fiber != nullptr) place.fiber = __tsan_create_fiber(0);
}

Stack::~Stack() {
  forget();  // memory that is mapped here later must not be taken for it
  ::munmap(bottom_, kStackBytes);
}

void Stack::begin_with(void (*begin)()) {
  auto* const words = reinterpret_cast<void**>(bottom_ + beginning_);
  if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(words - 512, 512 * sizeof(void*));
  std::memset(words - 16, 0, 16 * sizeof(void*));  // six registers among them
  words[-2] = reinterpret_cast<void*>(begin);
  place = {bottom_, kStackBytes, words - 8, nullptr, place.fiber};
}

void Stack::forget() {
  if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(bottom_, kStackBytes);
}

void mark_origin(Place& origin) {
  if (__tsan_get_current_fiber != nullptr) origin.fiber = __tsan_get_current_fiber();
}

// Being continued orders nothing: the threads of a block run at the same time on a device.
void go(Place& from, const Place& to, bool for_good) {
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack, to.bottom, to.bytes);
  }
  constexpr unsigned kWithoutOrder = 1;
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(to.fiber, kWithoutOrder);
  tutti_standin_switch(&from.top, to.top);
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
}

void arrive(Place& origin) {
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(nullptr, &origin.bottom, &origin.bytes);
  }
}

bool shares_memory_of_blocks() { return __asan_unpoison_memory_region != nullptr; }

bool tells_stacks_apart() { return __tsan_create_fiber != nullptr; }

void mark_release(const void* address) {
  if (__tsan_release != nullptr) __tsan_release(const_cast<void*>(address));
}

void mark_acquire(const void* address) {
  if (__tsan_acquire != nullptr) __tsan_acquire(const_cast<void*>(address));
}

}  // namespace tutti::standin
