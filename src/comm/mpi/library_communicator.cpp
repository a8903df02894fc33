#include "check.hpp"
#include "host_communicator.hpp"
#include "native.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::mpi {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 28;  // MPI counts with int

class LibraryOperation final : public Operation {
 public:
  LibraryOperation(MPI_Comm comm, const Tensor& values)
      : Operation({static_cast<const std::byte*>(values.data), values.bytes()}), comm_(comm), values_(values) {}

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

// The library does not tell what it sends; bytes are counted as for the least traffic that an all-reduce can
// do with.
class LibraryCommunicator final : public HostCommunicator {
 public:
  explicit LibraryCommunicator(MPI_Comm comm) : HostCommunicator(comm, false) {}

  std::string description() const override { return fmt::format("all-reduce of {}", library_name()); }

 private:
  std::vector<std::unique_ptr<Operation>> operations_for(const Tensor& values) override {
    const auto ranks = static_cast<std::uint64_t>(size());
    bytes_sent_counter() += 2 * (ranks - 1) * values.bytes() / ranks;

    std::vector<std::unique_ptr<Operation>> operations;
    const auto element = static_cast<std::int64_t>(bytes_of(values.type));
    for (std::int64_t first = 0; first < values.elements(); first += kPieceElements) {
      const Tensor part{.data = static_cast<std::byte*>(values.data) + first * element,
                        .shape = {std::min(kPieceElements, values.elements() - first)},
                        .type = values.type,
                        .space = values.space};
      operations.push_back(std::make_unique<LibraryOperation>(comm(), part));
    }
    return operations;
  }
};

}  // namespace
}  // namespace tutti::mpi

namespace tutti {

std::unique_ptr<Communicator> make_mpi_library_communicator(World& world) {
  return std::make_unique<mpi::LibraryCommunicator>(mpi::duplicate_communicator(world));
}

}  // namespace tutti
