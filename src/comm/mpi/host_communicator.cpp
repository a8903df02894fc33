#include "host_communicator.hpp"

#include "../host_memory.hpp"
#include "check.hpp"

namespace tutti::mpi {

HostCommunicator::HostCommunicator(MPI_Comm comm, bool helper_thread) : comm_(comm), queue_(helper_thread) {
  check(MPI_Comm_rank(comm_, &rank_));
  check(MPI_Comm_size(comm_, &size_));
}

Buffer HostCommunicator::allocate(std::size_t bytes) { return allocate_host_memory(bytes); }

void HostCommunicator::all_reduce_sum(const Tensor& values, Stream& stream) {
  require_summable(values, MemorySpace::host);
  stream.synchronize();
  if (size_ == 1 || values.elements() == 0) return;
  queue_.push(operations_for(values));
}

void HostCommunicator::finish(Stream&) { queue_.finish(); }

}  // namespace tutti::mpi
