#pragma once
// Seam B: sums over the ranks' device memory. Operations are enqueued in the same order by all ranks and
// carried out in that order per buffer; who drives them along (a helper thread, or calls between layers)
// never changes a bit.

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

// A sum of which every rank gets a share, and the shares of all ranks passed on to all. The share of rank r are the
// elements bounds[r] .. bounds[r + 1] - 1, possibly none; bounds begin with 0 and end with the number of elements.
struct SharedSum {
  // f32 or i64, added over the ranks: afterwards this rank's share holds the sum, the rest is unspecified. Empty: there
  // is nothing to add.
  Tensor values;
  std::vector<std::int64_t> bounds;  // ranks + 1, ascending
  // Work on the given stream with elements begin .. end - 1 of the share, once they hold the sum; called for each piece
  // of the share, by whichever thread drives the exchange, one piece at a time. Null: there is none.
  std::function<void(Stream& stream, std::int64_t begin, std::int64_t end)> then;
  // Of as many elements, of 4 or 8 bytes: what is in this rank's share when `then` is done goes to all ranks. Empty:
  // nothing does. May be `values`.
  Tensor results;
};

// The ways a sum can go over MPI's ranks. All but the last give the same bits.
enum class SumAlgorithm {
  ring,       // each rank to the next: the least traffic, and many steps
  direct,     // each rank to all others: two steps
  window,     // in memory that the ranks of one host share, where allocate() made it; in a ring where it did not
  automatic,  // whichever is fastest at a sum's size, as measured
};
const char* name_of(SumAlgorithm algorithm);

struct SumThreshold {
  std::int64_t up_to_bytes = 0;  // the last one holds for all that is longer, too
  SumAlgorithm algorithm = SumAlgorithm::ring;
};

// To be destroyed after finish(): a destructor does not wait, and what is under way uses borrowed memory.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string description() const = 0;  // "ring over MPI", "solo"

  // Which way sums go, by ascending size; empty: none of these.
  virtual std::vector<SumThreshold> thresholds() const { return {}; }

  // Zeroed memory that sums over it can use without a copy, aligned to 64 bytes at least. All ranks give a sum such
  // memory, or none does.
  virtual Buffer allocate(std::size_t bytes) = 0;

  // Adds the f32 or i64 values of all ranks, in place, after the work now in `stream`. `values` is borrowed
  // until finish(). The f32 sum is the same bits on every rank and for the same number of ranks. Collective.
  // Asynchronous.
  virtual void all_reduce_sum(const Tensor& values, Stream& stream) = 0;
  // The f32 sum of an element depends on the ranks and the shares alone. Both tensors are borrowed until finish().
  // Collective. Asynchronous.
  virtual void share(const SharedSum& sum, Stream& stream) = 0;
  // What a single server does: rank 0 receives the f32 values of every other rank from that rank itself and adds them
  // to its own in the order of the ranks; the others' are left as they were. Borrowed until finish(). Collective.
  // Asynchronous.
  virtual void reduce_to_root(const Tensor& values, Stream& stream) = 0;
  // Rank 0's values everywhere, sent to every rank by rank 0 itself; of 4 or 8 bytes an element. Likewise.
  virtual void broadcast(const Tensor& values, Stream& stream) = 0;
  // Moves enqueued operations along without waiting; false when none is left. Safe from one helper thread
  // beside the owner's.
  virtual bool progress() = 0;
  // Work enqueued on `stream` after this sees the results of every operation so far. Collective. Throws what
  // a helper thread met.
  virtual void finish(Stream& stream) = 0;

  // Drives no operation any further, so that its memory may go: for a rank that failed. Nothing but destruction may
  // follow.
  virtual void abandon() noexcept = 0;

  // Payload bytes that this rank has sent so far, or has given and let others take where they share memory.
  virtual std::uint64_t bytes_sent() const = 0;
};

// One rank: sums are what they are. Memory is the processor's (borrowed), or else the host's.
std::unique_ptr<Communicator> make_solo_communicator(Backend* processor = nullptr);

// How sums over MPI go on their way: so many operations at once, in messages of at most so many bytes.
constexpr std::size_t kSumsInFlight = 4;
constexpr std::int64_t kLongestMessageBytes = std::int64_t{512} << 10;

struct RingOptions {
  // Drive operations from a helper thread; wants a core that does not compute.
  bool helper_thread = false;
  SumAlgorithm algorithm = SumAlgorithm::automatic;
};
// Sums of host memory whose bits are those of a ring of point-to-point messages, whichever way they go; so how long
// each way takes may be measured anew at every start. Has its own MPI communicator. Throws a usage error on all ranks
// when `window` is asked for and the ranks do not share memory. Collective.
std::unique_ptr<Communicator> make_mpi_ring_communicator(World& world, const RingOptions& options);
// The same with the MPI library's own all-reduce, with which ours are compared: its bits may be others at every size,
// and differ between libraries, so it is never chosen. Its bytes are counted as those of the least traffic an
// all-reduce can do with. Collective.
std::unique_ptr<Communicator> make_mpi_library_communicator(World& world);

// Sums over a processor's memory by a communicator of host memory: copied out when the values are there, summed, copied
// back, several on their way at once. The sums' bits are those of `host`. `backend` is borrowed.
std::unique_ptr<Communicator> make_staged_communicator(Backend& backend, std::unique_ptr<Communicator> host);

}  // namespace tutti
