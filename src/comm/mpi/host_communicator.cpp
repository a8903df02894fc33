#include "host_communicator.hpp"

#include "../arguments.hpp"
#include "check.hpp"

#include <span>
#include <utility>

namespace tutti::mpi {

HostCommunicator::HostCommunicator(MPI_Comm comm, bool helper_thread) : comm_(comm), queue_(helper_thread) {
  check(MPI_Comm_rank(comm_, &rank_));
  check(MPI_Comm_size(comm_, &size_));
}

Buffer HostCommunicator::allocate(std::size_t bytes) { return allocate_host_memory(bytes); }

void HostCommunicator::all_reduce_sum(const Tensor& values, Stream& stream) {
  require_summable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_sum(values);
}

void HostCommunicator::share(const SharedSum& sum, Stream& stream) {
  require_share(sum, size_, MemorySpace::host);
  stream.synchronize();
  if (size_ == 1) {
    work_on(sum, share_of(sum, 0), stream);
  } else if (sum.bounds.back() > 0) {
    push_share(sum);
  }
}

void HostCommunicator::sum_at_first(const Tensor& values, Stream& stream) {
  require_summable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_star(values, StarDirection::sum_at_first);
}

void HostCommunicator::spread_from_first(const Tensor& values, Stream& stream) {
  require_passable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ > 1 && !is_empty(values)) push_star(values, StarDirection::spread_from_first);
}

void HostCommunicator::push(const Tensor& memory, const Tensor& more, Operations operations) {
  const auto bytes_of = [](const Tensor& tensor) {
    return std::span(static_cast<const std::byte*>(tensor.data), is_empty(tensor) ? 0 : tensor.bytes());
  };
  queue_.push({bytes_of(memory), bytes_of(more)}, std::move(operations));
}

void HostCommunicator::finish(Stream&) { queue_.finish(); }

}  // namespace tutti::mpi
