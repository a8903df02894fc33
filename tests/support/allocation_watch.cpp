#include "support/allocation_watch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

std::atomic<std::size_t> largest_allocation{0};

namespace {

void* allocate(std::size_t bytes) noexcept {
  std::size_t largest = largest_allocation.load();
  while (bytes > largest && !largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
  return std::malloc(std::max<std::size_t>(bytes, 1));
}

void* allocate_or_throw(std::size_t bytes) {
  void* memory = allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
