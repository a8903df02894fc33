#include "tutti/comm/blocking_sums.hpp"

#include "../arguments.hpp"
#include "check.hpp"
#include "native.hpp"
#include "ring_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::mpi {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 28;  // MPI counts with int

// One collective call of the library, which matches them between ranks by their order: that of the queue.
class LibraryOperation final : public Operation {
 public:
  LibraryOperation(MPI_Comm comm, const Tensor& values, bool blocks) : comm_(comm), values_(values), blocks_(blocks) {}

  void start() override {
    const int count = static_cast<int>(values_.elements());
    const MPI_Datatype type = values_.type == ElementType::f32 ? MPI_FLOAT : MPI_INT64_T;
    check(blocks_ ? MPI_Allreduce(MPI_IN_PLACE, values_.data, count, type, MPI_SUM, comm_)
                  : MPI_Iallreduce(MPI_IN_PLACE, values_.data, count, type, MPI_SUM, comm_, &request_));
  }

  State advance() override {
    int done = 0;
    check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE));
    return done != 0 ? State::done : State::waiting;
  }

 private:
  MPI_Comm comm_;
  Tensor values_;
  bool blocks_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// The library does not tell what it sends.
class LibraryCommunicator final : public RingCommunicator {
 public:
  LibraryCommunicator(MPI_Comm comm, bool blocks)
      : RingCommunicator(comm, false, nullptr, SumChoice(SumAlgorithm::ring)), blocks_(blocks) {}

  std::string description() const override { return fmt::format("all-reduce of {}", library_name()); }

 private:
  void push_sum(const Tensor& values) override {
    const auto ranks = static_cast<std::uint64_t>(size());
    place().bytes_sent += 2 * (ranks - 1) * values.bytes() / ranks;
    Operations operations;
    for (std::int64_t first = 0; first < values.elements(); first += kPieceElements) {
      const Tensor piece = part_of(values, {first, std::min(first + kPieceElements, values.elements())});
      operations.push_back(std::make_unique<LibraryOperation>(place().comm, piece, blocks_));
    }
    push(values, {}, std::move(operations));
  }

  bool blocks_;
};

std::unique_ptr<Communicator> make_library_communicator(World& world, bool blocks) {
  auto made = std::make_unique<LibraryCommunicator>(duplicate_communicator(world), blocks);
  made->count_in(world.collectives());
  return made;
}

}  // namespace
}  // namespace tutti::mpi

namespace tutti {

std::unique_ptr<Communicator> make_mpi_library_communicator(World& world) {
  return mpi::make_library_communicator(world, false);
}

std::unique_ptr<Communicator> make_mpi_blocking_communicator(World& world) {
  return mpi::make_library_communicator(world, true);
}

}  // namespace tutti
