#pragma once
// Collectives on the ranks' device memory. All ranks enqueue operations in the same order, and operations on the same
// buffer run in that order. Whether a helper thread or calls between layers make progress never changes a bit.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"
#include "tutti/base/enum_names.hpp"
#include "tutti/comm/world.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class Backend;

// A reduce_scatter, work on this rank's shard, and an all_gather of the results. The shard of rank r is elements
// bounds[r] .. bounds[r + 1] - 1 and may be empty; bounds begin with 0 and end with the number of elements.
struct ReduceScatterGather {
  // f32, i32 or i64. After the reduce_scatter this rank's shard holds the sum; the rest is unspecified. Empty: no
  // reduce_scatter.
  Tensor values{};
  std::vector<std::int64_t> bounds;  // ranks + 1, ascending
  // Enqueues work on elements begin .. end - 1 of the shard, which hold the sum. Called for one piece of the shard at a
  // time, by the thread that makes progress. Null: no work.
  std::function<void(Stream& stream, std::int64_t begin, std::int64_t end)> transform_shard{};
  // The same number of elements, of 4 or 8 bytes each. After transform_shard, this rank's shard of them is sent to all
  // ranks. Empty: no all_gather. May be `values`.
  Tensor results{};
};

// The algorithm of an all_reduce over MPI. All give the same bits.
enum class AllReduceAlgorithm {
  ring,           // each rank sends to the next: least traffic, many steps
  direct,         // each rank sends to all others: two steps
  shared_memory,  // of one host, for memory from allocate(); otherwise a ring
  automatic,      // the fastest by measurement for each size
};
constexpr std::array<std::string_view, 4> enum_names(AllReduceAlgorithm) {
  return {"ring", "direct", "window", "automatic"};
}

struct AllReduceThreshold {
  std::int64_t up_to_bytes = std::numeric_limits<std::int64_t>::max();  // the largest size that it applies to
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::ring;
};

// Call finish() before destroying it: the destructor does not wait, and pending operations use borrowed memory.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string description() const = 0;  // "ring over MPI", "solo"

  // The algorithms by ascending size; empty if none of these is used.
  virtual std::vector<AllReduceThreshold> thresholds() const { return {}; }

  // Zeroed memory that operations can use without a copy, aligned to at least 64 bytes. In one operation, either all
  // ranks or none must use such memory; the first one waits for the other ranks where NCCL registers the memory.
  virtual Buffer allocate(std::size_t bytes) = 0;

  // Adds the f32, bf16, i32 or i64 values of all ranks in place, after the work already in `stream`. `values` is
  // borrowed until finish(). f32 and bf16 sums have the same bits on every rank; they depend on the number of ranks.
  // bf16 values are added in f32; over MPI, every partial sum is then rounded to nearest even. Collective.
  // Asynchronous.
  virtual void all_reduce(const Tensor& values, Stream& stream) = 0;
  // The bits of f32 sums depend only on the ranks' values and the bounds. Both tensors are borrowed until finish().
  // Collective. Asynchronous.
  virtual void reduce_scatter_gather(const ReduceScatterGather& request, Stream& stream) = 0;
  // A reduction at the root: rank 0 receives the f32 values of each other rank directly and adds them to its own
  // in rank order; the other ranks' values do not change. Borrowed until finish(). Collective. Asynchronous.
  virtual void reduce_to_root(const Tensor& values, Stream& stream) = 0;
  // Rank 0 sends its values, of 4 or 8 bytes per element, directly to each other rank. Borrowed until finish().
  // Collective. Asynchronous.
  virtual void broadcast(const Tensor& values, Stream& stream) = 0;
  // Makes progress on enqueued operations without waiting; false if none is left. One helper thread may call it
  // concurrently with the owner's thread.
  virtual bool progress() = 0;
  // Work enqueued on `stream` afterwards sees the results of all operations so far. Rethrows an exception of a helper
  // thread. Collective.
  virtual void finish(Stream& stream) = 0;

  // Stops making progress, so that a failed rank may free the memory of its operations. Afterwards only destruction is
  // allowed.
  virtual void abort() noexcept = 0;

  // Payload bytes that this rank has sent so far. In shared memory: the bytes it wrote to other ranks' memory, and
  // those that others read from its own.
  virtual std::uint64_t bytes_sent() const = 0;
};

// A single rank, whose sums are its own values. Memory is on `processor` (borrowed), or on the host if it is null.
std::unique_ptr<Communicator> make_solo_communicator(Backend* processor = nullptr);

struct MpiOptions {
  // Make progress in a helper thread, which needs a core of its own.
  bool helper_thread = false;
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic;
};
// On host memory. The bits are those of a ring of point-to-point messages, whatever the algorithm, so the algorithms
// can be measured again at every start. Uses its own MPI communicator. Throws a usage error on all ranks if `window` is
// requested and the ranks do not share memory. Collective.
std::unique_ptr<Communicator> make_mpi_communicator(World& world, const MpiOptions& options);
// Uses MPI_Iallreduce, whose latency grows with the logarithm of the ranks. Only for integers and for comparison: the
// bits of sums of floats may differ between sizes and MPI libraries. bytes_sent() assumes the minimum that an
// all_reduce must send. With `blocks` it uses MPI_Allreduce: calls return when the sum is complete, and no other
// operation may be in flight. Collective.
std::unique_ptr<Communicator> make_mpi_library_communicator(World& world, bool blocks = false);

// On device memory, through a communicator on host memory: values are copied to the host, reduced and copied back, with
// multiple operations in flight. The bits are those of `host`. `backend` is borrowed.
std::unique_ptr<Communicator> make_staged_communicator(Backend& backend, std::unique_ptr<Communicator> host);

}  // namespace tutti
