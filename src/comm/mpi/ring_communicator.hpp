#pragma once
// Sums on values in host memory: in rings of MPI's point-to-point messages or in faster ways to the same bits, and in
// stars where a single server is asked for, all cut into operations that a queue drives.

#include "tutti/comm/communicator.hpp"

#include "../arguments.hpp"
#include "../window.hpp"
#include "operation_queue.hpp"
#include "sum_choice.hpp"
#include "sum_operations.hpp"

#include <mpi.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace tutti::mpi {

class RingCommunicator : public Communicator {
 public:
  // `comm` is this communicator's own (duplicate_communicator). Without a window (null) none is chosen.
  RingCommunicator(MPI_Comm comm, bool helper_thread, std::unique_ptr<Window> window, SumChoice choice);
  // Where sums are counted; before the first one.
  void count_in(CollectiveCounter& collectives) { queue_.count_in(collectives); }
  // Chooses by measuring. Collective.
  void choose(World& world);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string description() const override;
  std::vector<SumThreshold> thresholds() const override { return choice_.thresholds(); }
  Buffer allocate(std::size_t bytes) override { return window_ ? window_->allocate(bytes) : allocate_host(bytes); }
  void all_reduce(const Tensor& values, Stream& stream) override;
  void reduce_scatter_gather(const ShardedSum& sum, Stream& stream) override;
  void reduce_to_root(const Tensor& values, Stream& stream) override;
  void broadcast(const Tensor& values, Stream& stream) override;
  bool progress() override { return queue_.progress(); }
  void finish(Stream&) override { queue_.finish(); }
  void abandon() noexcept override { queue_.abandon(); }
  std::uint64_t bytes_sent() const override { return bytes_sent_.load(std::memory_order_relaxed); }

 protected:
  RankPosition place() { return {.comm = comm_, .rank = rank_, .size = size_, .bytes_sent = bytes_sent_}; }
  // The second tensor may be empty.
  void push(const Tensor& memory, const Tensor& more, Operations operations);

 private:
  // For these, arguments are checked and not empty; there are two ranks at least.
  virtual void push_sum(const Tensor& values);
  void push_sharded(const ShardedSum& sum);
  void push_works(std::vector<SumWork> works);
  void push_star(const Tensor& values, StarDirection direction);
  SumAlgorithm algorithm_for(const SumWork& work) const;
  int next_tag();

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  bool helper_thread_;
  std::unique_ptr<Window> window_;
  SumChoice choice_;
  std::int64_t next_tag_ = 0;
  std::uint64_t windows_ = 0;  // operations in the window so far
  std::atomic<std::uint64_t> bytes_sent_ = 0;
  HostStream host_stream_;
  OperationQueue queue_;  // last, so that its helper thread ends before what it uses
};

}  // namespace tutti::mpi
