#pragma once
// POSIX shared memory in /dev/shm, mapped by all ranks of a host. It is unlinked as soon as all have mapped it; the
// World distributes its name and knows when that is. Names left by killed processes are removed by the next process
// that creates one.

#include "tutti/backend/tensor.hpp"
#include "tutti/base/unique_handle.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace tutti {

// Allocates all pages of a file in memory. Repeats posix_fallocate if a signal interrupts it; returns its status.
int allocate_pages(int file, std::size_t bytes);

// Zeroed memory with all pages allocated, and its name, which is removed with this object; the memory may outlive it.
class NodeMemory {
 public:
  // Throws an io error with the required and the free space.
  explicit NodeMemory(std::size_t bytes);
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;
  ~NodeMemory();

  const std::string& name() const { return name_; }
  Buffer take() { return std::move(memory_); }

 private:
  NodeMemory() = default;

  std::string name_;
  Descriptor locked_;  // open while the name exists
  Buffer memory_;
};

// Maps memory that another process of this host has created. Throws an io error.
Buffer open_node_memory(const std::string& name, std::size_t bytes);

}  // namespace tutti
