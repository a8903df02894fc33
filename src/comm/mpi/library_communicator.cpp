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
  LibraryOperation(MPI_Comm comm, const Tensor& values) : comm_(comm), values_(values) {}

  void start() override {
    check(MPI_Iallreduce(MPI_IN_PLACE, values_.data, static_cast<int>(values_.elements()),
                         values_.type == ElementType::f32 ? MPI_FLOAT : MPI_INT64_T, MPI_SUM, comm_, &request_));
  }

  State advance() override {
    int done = 0;
    check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE));
    return done != 0 ? State::done : State::waiting;
  }

 private:
  MPI_Comm comm_;
  Tensor values_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// The library does not tell what it sends.
class LibraryCommunicator final : public RingCommunicator {
 public:
  explicit LibraryCommunicator(MPI_Comm comm) : RingCommunicator(comm, false, nullptr, SumChoice(SumAlgorithm::ring)) {}

  std::string description() const override { return fmt::format("all-reduce of {}", library_name()); }

 private:
  void push_sum(const Tensor& values) override {
    const auto ranks = static_cast<std::uint64_t>(size());
    place().bytes_sent += 2 * (ranks - 1) * values.bytes() / ranks;
    Operations operations;
    for (std::int64_t first = 0; first < values.elements(); first += kPieceElements) {
      const Tensor piece = part_of(values, {first, std::min(first + kPieceElements, values.elements())});
      operations.push_back(std::make_unique<LibraryOperation>(place().comm, piece));
    }
    push(values, {}, std::move(operations));
  }
};

}  // namespace
}  // namespace tutti::mpi

namespace tutti {

std::unique_ptr<Communicator> make_mpi_library_communicator(World& world) {
  auto made = std::make_unique<mpi::LibraryCommunicator>(mpi::duplicate_communicator(world));
  made->count_in(world.meetings());
  return made;
}

}  // namespace tutti
