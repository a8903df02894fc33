#pragma once
// Collectives over the ranks' device memory. All ranks enqueue operations in the same order, and they are carried out
// in that order per buffer; who drives them along (a helper thread, or calls between layers) never changes a bit.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"
#include "tutti/comm/world.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tutti {

class Backend;

// A reduce_scatter and an all_gather of the results, with work in between. The shard of rank r are the elements
// bounds[r] .. bounds[r + 1] - 1, possibly none; bounds begin with 0 and end with the number of elements.
struct ShardedSum {
  // f32 or i64, added over the ranks: afterwards this rank's shard holds the sum, the rest is unspecified. Empty: there
  // is nothing to add.
  Tensor values;
  std::vector<std::int64_t> bounds;  // ranks + 1, ascending
  // Work on the given stream with elements begin .. end - 1 of the shard, once they hold the sum; called for each piece
  // of the shard, by whichever thread drives the exchange, one piece at a time. Null: there is none.
  std::function<void(Stream& stream, std::int64_t begin, std::int64_t end)> then;
  // As many elements, of 4 or 8 bytes: this rank's shard of them goes to all ranks when `then` is done. Empty: nothing
  // does. May be `values`.
  Tensor results;
};

// How an all_reduce over MPI's ranks is carried out. All give the same bits.
enum class SumAlgorithm {
  ring,       // each rank to the next: the least traffic, and many steps
  direct,     // each rank to all others: two steps
  window,     // in memory that the ranks of one host share, where allocate() made it; in a ring where it did not
  automatic,  // the fastest at a sum's size, as measured
};
const char* name_of(SumAlgorithm algorithm);

struct SumThreshold {
  std::int64_t up_to_bytes = 0;  // the last one holds for all that is longer, too
  SumAlgorithm algorithm = SumAlgorithm::ring;
};

// Destroy it after finish(): the destructor does not wait, and what is under way uses borrowed memory.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string description() const = 0;  // "ring over MPI", "solo"

  // The algorithm by ascending size of the sum; empty: none of these.
  virtual std::vector<SumThreshold> thresholds() const { return {}; }

  // Zeroed memory that sums over it can use without a copy, aligned to 64 bytes at least. All ranks give a sum such
  // memory, or none does.
  virtual Buffer allocate(std::size_t bytes) = 0;

  // Adds the f32 or i64 values of all ranks, in place, after the work now in `stream`. `values` is borrowed
  // until finish(). The f32 sum is the same bits on every rank and for the same number of ranks. Collective.
  // Asynchronous.
  virtual void all_reduce(const Tensor& values, Stream& stream) = 0;
  // The f32 sum of an element depends on the ranks and the bounds alone. Both tensors are borrowed until finish().
  // Collective. Asynchronous.
  virtual void reduce_scatter_gather(const ShardedSum& sum, Stream& stream) = 0;
  // What a single parameter server does: rank 0 receives the f32 values of every other rank from that rank itself and
  // adds them to its own in the order of the ranks; the others' stay as they were. Borrowed until finish(). Collective.
  // Asynchronous.
  virtual void reduce_to_root(const Tensor& values, Stream& stream) = 0;
  // Rank 0 sends its values, of 4 or 8 bytes an element, to every other rank itself. Borrowed until finish().
  // Collective. Asynchronous.
  virtual void broadcast(const Tensor& values, Stream& stream) = 0;
  // Moves enqueued operations along without waiting; false when none is left. Safe from one helper thread
  // beside the owner's.
  virtual bool progress() = 0;
  // Work enqueued on `stream` after this sees the results of every operation so far. Collective. Throws what
  // a helper thread has caught.
  virtual void finish(Stream& stream) = 0;

  // Drives no operation any further, so that its memory may be freed: for a rank that failed. Only destruction may
  // follow.
  virtual void abandon() noexcept = 0;

  // Payload bytes that this rank has sent so far, or that others have read and it has written in shared memory.
  virtual std::uint64_t bytes_sent() const = 0;
};

// One rank, whose sums are its own values. Memory is the processor's (borrowed), or else the host's.
std::unique_ptr<Communicator> make_solo_communicator(Backend* processor = nullptr);

// Over MPI at most this many operations are under way at once, in messages of at most this many bytes.
constexpr std::size_t kSumsInFlight = 4;
constexpr std::int64_t kLongestMessageBytes = std::int64_t{512} << 10;

struct RingOptions {
  // Drive operations from a helper thread; wants a core that does not compute.
  bool helper_thread = false;
  SumAlgorithm algorithm = SumAlgorithm::automatic;
};
// Over host memory, with the bits of a ring of point-to-point messages whatever the algorithm; so the algorithms may be
// measured anew at every start. Has its own MPI communicator. Throws a usage error on all ranks when `window` is asked
// for and the ranks do not share memory. Collective.
std::unique_ptr<Communicator> make_mpi_ring_communicator(World& world, const RingOptions& options);
// The same by MPI_Iallreduce, for comparison: its bits may differ from size to size and between libraries, so it is
// never chosen. Its bytes are counted as the least that an all_reduce can send. Collective.
std::unique_ptr<Communicator> make_mpi_library_communicator(World& world);

// Over a device's memory by a communicator over host memory: values are copied out, summed and copied back, several
// operations at once. The bits are those of `host`. `backend` is borrowed.
std::unique_ptr<Communicator> make_staged_communicator(Backend& backend, std::unique_ptr<Communicator> host);

// The same by MPI_Allreduce, for measurements: the call returns only once the sum is there, and nothing else may be
// under way meanwhile. Collective.
std::unique_ptr<Communicator> make_mpi_blocking_communicator(World& world);

}  // namespace tutti
