#pragma once
// What the communicators over MPI share: values in host memory, and operations that a queue drives. How a sum
// is made of operations is theirs.

#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"

#include "operation_queue.hpp"

#include <mpi.h>

#include <atomic>
#include <vector>

namespace tutti::mpi {

class HostCommunicator : public Communicator {
 public:
  // `comm` is this communicator's own (duplicate_communicator).
  HostCommunicator(MPI_Comm comm, bool helper_thread);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Buffer allocate(std::size_t bytes) override;
  void all_reduce_sum(const Tensor& values, Stream& stream) override;
  void share(const SharedSum&, Stream&) override { throw Error(ErrorSource::internal, "unfinished"); }
  void sum_at_first(const Tensor&, Stream&) override { throw Error(ErrorSource::internal, "unfinished"); }
  void spread_from_first(const Tensor&, Stream&) override { throw Error(ErrorSource::internal, "unfinished"); }
  bool progress() override { return queue_.progress(); }
  void finish(Stream& stream) override;
  void abandon() noexcept override { queue_.abandon(); }
  std::uint64_t bytes_sent() const override { return bytes_sent_.load(std::memory_order_relaxed); }

 protected:
  MPI_Comm comm() const { return comm_; }
  std::atomic<std::uint64_t>& bytes_sent_counter() { return bytes_sent_; }

 private:
  // `values` are f32 or i64 and not empty; there are two ranks at least.
  virtual std::vector<std::unique_ptr<Operation>> operations_for(const Tensor& values) = 0;

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  std::atomic<std::uint64_t> bytes_sent_ = 0;
  OperationQueue queue_;
};

}  // namespace tutti::mpi
