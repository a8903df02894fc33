#pragma once
// Memory that several processes of one host map: POSIX shared memory in /dev/shm. Its name exists only until all have
// mapped it; the world passes the name on and knows when all have. Names that killed processes have left are removed by
// the next process that makes one.

#include "tutti/backend/tensor.hpp"
#include "tutti/base/unique_handle.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace tutti {

// All pages of a file in memory, however many signals come meanwhile. Returns posix_fallocate's status.
int set_aside(int file, std::size_t bytes);

class NodeMemory {
 public:
  // New and zeroed, its pages set aside. Throws an io error that names what is wanted and what is free.
  explicit NodeMemory(std::size_t bytes);
  // What another process of this host has created. Throws an io error.
  NodeMemory(const std::string& name, std::size_t bytes);
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;
  ~NodeMemory() { unname(); }

  const std::string& name() const { return name_; }
  // From here on no other process can open it. For its creator; does nothing for others.
  void unname() noexcept;
  // The mapping's owner; it outlives this.
  Buffer take() { return std::move(memory_); }

 private:
  NodeMemory() = default;

  std::string name_;   // empty where there is none to remove
  Descriptor locked_;  // as long as it has its name
  Buffer memory_;
};

}  // namespace tutti
