#pragma once
// The ranks of this job: their numbers and hosts, and blocking collectives for infrequent use. Gradients are reduced by
// the Communicator. Waiting ranks sleep instead of spinning.

#include "tutti/backend/growing_memory.hpp"
#include "tutti/backend/tensor.hpp"
#include "tutti/comm/launcher.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

// The number of collectives that a rank has begun and completed. A collective of the Communicator over MPI counts once
// for each operation (piece) into which it is split. All ranks of a job call the same collectives in the same order, so
// they count alike. Other ranks can read the numbers while this one waits in a collective.
struct CollectiveCounter {
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> done{0};
  std::atomic<bool> by_nccl{false};  // some of them are NCCL's
};

// Counts one collective: its begin in the constructor, its end in the destructor.
class CollectiveScope {
 public:
  explicit CollectiveScope(CollectiveCounter& collectives) : collectives_(collectives) {
    collectives_.begun.fetch_add(1, std::memory_order_relaxed);
  }
  ~CollectiveScope() { collectives_.done.fetch_add(1, std::memory_order_relaxed); }
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;

 private:
  CollectiveCounter& collectives_;
};

class World {
 public:
  virtual ~World() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // The index of this rank among the ranks of its host, and their number.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  const std::string& host() const { return host_; }
  // For the startup banner: "Open MPI 4.1.4", or "no launcher".
  virtual std::string description() const = 0;

  // True if `mine` is true on all ranks. Collective.
  virtual bool all_true(bool mine) = 0;
  // Starts computing the maximum over all ranks, which finish_max() returns. The cost is negligible if one step starts
  // it and the next finishes it. Only one may be pending; other calls are allowed in between, and close() finishes it.
  // Collective.
  virtual void start_max(std::int64_t mine) = 0;
  virtual std::int64_t finish_max() = 0;
  // Collective.
  virtual void barrier() = 0;
  // Copies the root's bytes to all ranks. The length must be the same on all of them. Collective.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  // The bytes of all ranks, indexed by rank. Lengths may differ; their sum must be less than 2 GiB. Collective.
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) = 0;
  // Empty memory for all ranks of a host, which local rank 0 resizes and fills before share(). It has no name any more,
  // so a killed job leaves nothing behind. Collective.
  virtual GrowingMemory begin_node_memory() = 0;
  // Maps what local rank 0 has written; it is freed with the last of the buffers. Throws an input error with the
  // required and the free space if /dev/shm is too small. Collective.
  virtual Buffer share(GrowingMemory memory) = 0;
  // Both, for zeroed memory. `bytes` is that of local rank 0. Collective.
  Buffer node_memory(std::size_t bytes);
  // A barrier of the ranks of this host. Collective.
  virtual void node_barrier() = 0;
  // A sub-world of the ranks with the same color, in the same order; null for a negative color. Collective.
  virtual std::unique_ptr<World> split(int color) = 0;

  // Terminates all processes of the job with this status. For failures of a single rank.
  [[noreturn]] virtual void abort(int status) noexcept = 0;
  // Finalizes MPI, or frees this sub-world. Afterwards only rank() and size() may be called. A world that is destroyed
  // without close() does not wait for other ranks. Collective.
  virtual void close() = 0;

  // The counter of this world's collectives; sub-worlds and communicators made from it use the same one.
  CollectiveCounter& collectives() { return *collectives_; }
  // Replaces the counter. Borrowed.
  void set_collective_counter(CollectiveCounter& collectives) { collectives_ = &collectives; }

 protected:
  explicit World(std::string host) : host_(std::move(host)) {}

  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;

 private:
  std::string host_;
  CollectiveCounter own_collectives_;
  CollectiveCounter* collectives_ = &own_collectives_;
};

// A world of one process, without MPI.
std::unique_ptr<World> make_solo_world();
// The name and version of the MPI library, which need not be initialized: "Open MPI 4.1.4".
std::string mpi_library_version();
// Initializes MPI with MPI_THREAD_MULTIPLE, once per process. Throws if the library does not support that. Collective.
std::unique_ptr<World> make_mpi_world();

// broadcast and all_gather of text. Collective.
std::string broadcast_text(World& world, const std::string& text, int root);
std::vector<std::string> all_gather_text(World& world, const std::string& mine);

// The values of all ranks, indexed by rank. Their count may differ. Collective.
template <class Value>
std::vector<std::vector<Value>> all_gather_values(World& world, std::span<const Value> mine) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<std::vector<Value>> all;
  for (const auto& bytes : world.all_gather(std::as_bytes(mine))) {
    std::vector<Value>& theirs = all.emplace_back(bytes.size() / sizeof(Value));
    if (!bytes.empty()) std::memcpy(theirs.data(), bytes.data(), bytes.size());
  }
  return all;
}
std::vector<std::vector<double>> all_gather_doubles(World& world, const std::vector<double>& mine);
// The element-wise maximum over all ranks. The count must be the same on all of them. Collective.
std::vector<double> max_over_ranks(World& world, std::vector<double> values);

// Runs `action` on every rank. If it throws on any rank, all ranks throw the error of the lowest failing rank, marked
// as raised on all ranks; unless all failed with the same error, it names that rank and its host. A collective inside
// `action` must be reached by all ranks or by none. Collective.
void run_or_throw_on_all(World& world, const std::function<void()>& action);

}  // namespace tutti
