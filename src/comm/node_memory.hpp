#pragma once
// POSIX shared memory in /dev/shm, mapped by all ranks of a host. It is unlinked as soon as all have opened it, before
// it is filled; the World distributes its name and knows when that is. Names left by killed processes are removed by
// the next process that creates one.

#include "tutti/backend/growing_memory.hpp"
#include "tutti/base/unique_handle.hpp"

#include <cstddef>
#include <string>

namespace tutti {

// Allocates these pages of a file in memory. Repeats posix_fallocate if a signal interrupts it; returns its status.
int allocate_pages(int file, std::size_t begin, std::size_t bytes);

// The name of an empty file in /dev/shm, which is removed with this object; the file may outlive it.
class NodeFile {
 public:
  // Throws an io error.
  NodeFile();
  NodeFile(const NodeFile&) = delete;
  NodeFile& operator=(const NodeFile&) = delete;
  ~NodeFile();

  const std::string& name() const { return name_; }
  // Its size is bounded by the space in /dev/shm: errors name the required and the free space.
  GrowingMemory memory() const;

 private:
  std::string name_;
  Descriptor locked_;  // open while the name exists
};

// The file that another process of this host has created, and whose size it decides. Throws an io error.
GrowingMemory open_node_file(const std::string& name);

}  // namespace tutti
