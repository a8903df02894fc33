#pragma once
// Sums over MPI's point-to-point messages, on values in host memory: in rings, and in stars where a single server is
// asked for, both cut into operations that a queue drives.

#include "tutti/comm/communicator.hpp"

#include "../host_memory.hpp"
#include "message.hpp"
#include "operation_queue.hpp"

#include <mpi.h>

#include <atomic>

namespace tutti::mpi {

class RingCommunicator : public Communicator {
 public:
  // `comm` is this communicator's own (duplicate_communicator).
  RingCommunicator(MPI_Comm comm, bool helper_thread);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string description() const override;
  Buffer allocate(std::size_t bytes) override { return allocate_host_memory(bytes); }
  void all_reduce_sum(const Tensor& values, Stream& stream) override;
  void share(const SharedSum& sum, Stream& stream) override;
  void sum_at_first(const Tensor& values, Stream& stream) override;
  void spread_from_first(const Tensor& values, Stream& stream) override;
  bool progress() override { return queue_.progress(); }
  void finish(Stream&) override { queue_.finish(); }
  void abandon() noexcept override { queue_.abandon(); }
  std::uint64_t bytes_sent() const override { return bytes_sent_.load(std::memory_order_relaxed); }

 protected:
  RankPlace place() { return {.comm = comm_, .rank = rank_, .size = size_, .bytes_sent = bytes_sent_}; }
  // The second tensor may be empty.
  void push(const Tensor& memory, const Tensor& more, Operations operations);

 private:
  // For these, arguments are checked and not empty; there are two ranks at least.
  virtual void push_sum(const Tensor& values);
  void push_share(const SharedSum& sum);
  void push_star(const Tensor& values, StarDirection direction);
  int next_tag();

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  bool helper_thread_;
  std::int64_t next_tag_ = 0;
  std::atomic<std::uint64_t> bytes_sent_ = 0;
  HostStream host_stream_;
  OperationQueue queue_;  // last, so that its helper thread ends before what it uses
};

}  // namespace tutti::mpi
