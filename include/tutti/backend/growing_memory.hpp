#pragma once
// Host memory that is filled before its final size is known: it grows without being copied. It consists of pages of
// this process, or of a file in memory that other processes map, too.

#include "tutti/backend/tensor.hpp"
#include "tutti/base/unique_handle.hpp"

#include <cstddef>
#include <functional>

namespace tutti {

class GrowingMemory {
 public:
  // Gives the file this size and allocates all its pages, or throws.
  using Allocate = std::function<void(int file, std::size_t bytes)>;

  GrowingMemory() = default;
  GrowingMemory(Descriptor file, Allocate allocate);
  GrowingMemory(GrowingMemory&& other) noexcept;
  GrowingMemory& operator=(GrowingMemory&&) = delete;
  ~GrowingMemory();

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // New bytes are zero, the others stay; pointers into the memory become invalid. If the file cannot grow, the memory
  // goes on in pages of this process.
  void resize(std::size_t bytes);
  // The memory; this object is then empty. Throws the error of `allocate`, with the final size, if the file cannot
  // have it.
  Buffer take();

 private:
  void move_to_pages_of(int file);  // -1: of this process

  Descriptor file_;
  Allocate allocate_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool in_file_ = false;
};

}  // namespace tutti
