#pragma once
// The processes of this job: who they are, where they run, and what they agree on. Everything here is blocking and
// rare; gradients are summed by the Communicator. Waiting ranks sleep rather than spin.

#include "tutti/backend/tensor.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// How many collectives a rank has begun and how many it has completed, which others can read while it waits in one. All
// ranks of a job call the same collectives in the same order.
struct CollectiveCounter {
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> done{0};
};

// Counts one collective, from its begin to its end.
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

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // This rank among those of its host, and their number.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual const std::string& host() const = 0;
  // For the banner: "Open MPI 4.1.4", or "no launcher".
  virtual std::string description() const = 0;

  // True only if it is true on every rank. Collective.
  virtual bool agree(bool mine) = 0;
  // Starts to find the greatest of the numbers that all ranks give; end_greatest() returns it. What is begun at one
  // step and ended at the next costs next to nothing. One at a time; other calls may come between, and close() ends it.
  // Collective.
  virtual void begin_greatest(std::int64_t mine) = 0;
  virtual std::int64_t end_greatest() = 0;
  // Collective.
  virtual void barrier() = 0;
  // The root's bytes everywhere; every rank passes as many. Collective.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  // Every rank's bytes, by rank; lengths may differ, and make less than 2 GiB together. Collective.
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) = 0;
  // Zeroed memory, once per host, that all ranks of the host see at addresses of their own; `bytes` counts on
  // local rank 0 alone. It goes with the last of the buffers, and nothing is left behind by a killed job once
  // all ranks hold it. The space in /dev/shm is checked first: throws an io error that names what is wanted and
  // free. Collective.
  virtual Buffer node_memory(std::size_t bytes) = 0;
  // Returns when all ranks of this host have come here. Collective.
  virtual void node_barrier() = 0;
  // The ranks that gave the same colour, in the order of their ranks here; null for those with a negative
  // one. Collective.
  virtual std::unique_ptr<World> split(int colour) = 0;

  // Ends all processes of the job, now, with this status. For a failure that one rank met alone.
  [[noreturn]] virtual void abort(int status) noexcept = 0;
  // Ends the use of MPI, or of this sub-world alone; nothing but rank() and size() may follow. A world
  // destroyed unclosed just leaves. Collective.
  virtual void close() = 0;

  // Counts the collectives of this world, of sub-worlds made from now on, and of communicators made with them.
  CollectiveCounter& collectives() { return *collectives_; }
  // Counts there from now on; borrowed.
  void count_in(CollectiveCounter& collectives) { collectives_ = &collectives; }

 private:
  CollectiveCounter own_collectives_;
  CollectiveCounter* collectives_ = &own_collectives_;
};

// A world of one process, without MPI.
std::unique_ptr<World> make_solo_world();
// True when a launcher (mpirun, srun, mpiexec) started this process as one of its ranks.
bool started_by_launcher();
// The rank that the launcher gave this process, before MPI is initialised; 0 without one.
int launcher_rank();
// The name and version of the MPI library, which need not be initialised: "Open MPI 4.1.4".
std::string mpi_library_version();
// Initialises MPI with full thread support, once per process. Throws when the library does not give it.
// Collective.
std::unique_ptr<World> make_mpi_world();

// Text through broadcast and all_gather. Collective.
std::string broadcast_text(World& world, const std::string& text, int root);
std::vector<std::string> all_gather_text(World& world, const std::string& mine);

// Every rank's figures, by rank; any number of them. Collective.
std::vector<std::vector<double>> all_gather_figures(World& world, const std::vector<double>& mine);
// Of each figure, the greatest that any rank gave. Every rank gives as many. Collective.
std::vector<double> greatest_of_ranks(World& world, std::vector<double> figures);

// Runs `action` on every rank and votes; a collective inside it must be reached by all ranks or by none. When
// any rank's action threw, every rank throws: the lowest failing rank's error, marked as raised on all ranks,
// with that rank and host named when not all failed alike. Collective.
void run_agreed(World& world, const std::function<void()>& action);

}  // namespace tutti
