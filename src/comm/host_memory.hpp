#pragma once
// Host memory that sums over ranks run on, for every communicator that works there.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <cstddef>

namespace tutti {

// Zeroed, aligned to 64 bytes.
Buffer allocate_host_memory(std::size_t bytes);

// Of memory that is ready when it is given away.
class HostStream final : public Stream {
 public:
  void synchronize() override {}
};

}  // namespace tutti
