#include "host_communicator.hpp"
#include "native.hpp"
#include "ring_operation.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::mpi {
namespace {

// A long sum is cut into rings with chunks of this size at most, so that adding one overlaps receiving the
// next, and a chunk stays in the cache between the two.
constexpr std::int64_t kChunkBytes = std::int64_t{512} << 10;
// Rings that can be going at once are few; tags up to 32767 are every MPI library's.
constexpr std::int64_t kTags = 1024;
static_assert(static_cast<std::int64_t>(OperationQueue::kInFlight) < kTags);

class RingCommunicator final : public HostCommunicator {
 public:
  RingCommunicator(MPI_Comm comm, bool helper_thread)
      : HostCommunicator(comm, helper_thread), helper_thread_(helper_thread) {}

  std::string description() const override {
    return fmt::format("ring over {}{}", library_name(), helper_thread_ ? ", helper thread" : "");
  }

 private:
  std::vector<std::unique_ptr<Operation>> operations_for(const Tensor& values) override {
    const std::int64_t element = static_cast<std::int64_t>(bytes_of(values.type));
    const std::int64_t longest = size() * (kChunkBytes / element);
    const std::int64_t elements = values.elements();
    const std::int64_t pieces = (elements + longest - 1) / longest;

    std::vector<std::unique_ptr<Operation>> operations;
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const std::int64_t first = elements * piece / pieces;
      const std::int64_t end = elements * (piece + 1) / pieces;
      const Tensor part{.data = static_cast<std::byte*>(values.data) + first * element,
                        .shape = {end - first},
                        .type = values.type,
                        .space = values.space};
      operations.push_back(std::make_unique<RingOperation>(RingPlace{.comm = comm(), .rank = rank(), .size = size()},
                                                           part, static_cast<int>(next_++ % kTags),
                                                           bytes_sent_counter()));
    }
    return operations;
  }

  bool helper_thread_;
  std::int64_t next_ = 0;
};

}  // namespace
}  // namespace tutti::mpi

namespace tutti {

std::unique_ptr<Communicator> make_mpi_ring_communicator(World& world, const RingOptions& options) {
  return std::make_unique<mpi::RingCommunicator>(mpi::duplicate_communicator(world), options.helper_thread);
}

}  // namespace tutti
