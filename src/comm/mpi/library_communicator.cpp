#include "tutti/base/error.hpp"

#include "../arguments.hpp"
#include "check.hpp"
#include "host_communicator.hpp"
#include "native.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace tutti::mpi {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 28;  // MPI counts with int

// One collective call of the library, which matches them between ranks by their order: that of the queue.
class LibraryOperation final : public Operation {
 public:
  using Begin = std::function<void(MPI_Request* request)>;

  explicit LibraryOperation(Begin begin) : begin_(std::move(begin)) {}

  void start() override { begin_(&request_); }

  State advance() override {
    int done = 0;
    check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE));
    return done != 0 ? State::done : State::waiting;
  }

 private:
  Begin begin_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

MPI_Datatype native_type(const Tensor& values) {
  if (values.type == ElementType::f32) return MPI_FLOAT;
  return bytes_of(values.type) == 4 ? MPI_INT32_T : MPI_INT64_T;
}

// The library does not tell what it sends; bytes are counted as for the least traffic that can do: as if ranks sent the
// values of the others' shares to be summed, and results of as many; and in a star one copy for each rank but the first.
class LibraryCommunicator final : public HostCommunicator {
 public:
  explicit LibraryCommunicator(MPI_Comm comm) : HostCommunicator(comm, false) {}

  std::string description() const override { return fmt::format("all-reduce of {}", library_name()); }

 private:
  void push_sum(const Tensor& values) override {
    const auto ranks = static_cast<std::uint64_t>(size());
    place().bytes_sent += 2 * (ranks - 1) * values.bytes() / ranks;
    push_all_reduce(values);
  }

  void push_all_reduce(const Tensor& values) {
    push_pieces(values, [this](const Tensor& piece, int count, MPI_Request* request) {
      check(MPI_Iallreduce(MPI_IN_PLACE, piece.data, count, native_type(piece), MPI_SUM, place().comm, request));
    });
  }

  // What is done with the share, and its gathering, wait for the sum by being pushed after it.
  void push_share(const SharedSum& sum) override {
    const auto others = static_cast<std::uint64_t>(sum.bounds.back() - share_of(sum, rank()).elements());
    if (!is_empty(sum.values)) {
      place().bytes_sent += others * bytes_of(sum.values.type);
      push_all_reduce(sum.values);
    }
    if (!is_empty(sum.results)) place().bytes_sent += others * bytes_of(sum.results.type);
    Operations last;
    last.push_back(std::make_unique<LibraryOperation>(
        [this, sum, counts = counts_of(sum), places = places_of(sum)](MPI_Request* request) {
          work_on(sum, share_of(sum, rank()), host_stream());
          if (is_empty(sum.results)) return;
          check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sum.results.data, counts.data(), places.data(),
                                native_type(sum.results), place().comm, request));
        }));
    push(sum.values, sum.results, std::move(last));
  }

  std::vector<int> counts_of(const SharedSum& sum) const {
    std::vector<int> counts;
    for (int r = 0; r < size(); ++r) counts.push_back(static_cast<int>(share_of(sum, r).elements()));
    return counts;
  }

  static std::vector<int> places_of(const SharedSum& sum) {
    if (sum.bounds.back() <= std::numeric_limits<int>::max()) return {sum.bounds.begin(), sum.bounds.end() - 1};
    throw Error(ErrorSource::internal,
                fmt::format("MPI gathers no {} elements at once; use the ring", sum.bounds.back()));
  }

  void push_star(const Tensor& values, StarDirection direction) override {
    const bool sums = direction == StarDirection::sum_at_first;
    if (sums == (rank() != 0)) place().bytes_sent += values.bytes() * static_cast<std::uint64_t>(sums ? 1 : size() - 1);
    push_pieces(values, [this, sums](const Tensor& piece, int count, MPI_Request* request) {
      if (sums) {
        const void* const from = rank() == 0 ? MPI_IN_PLACE : piece.data;
        check(MPI_Ireduce(from, piece.data, count, native_type(piece), MPI_SUM, 0, place().comm, request));
      } else {
        check(MPI_Ibcast(piece.data, count, native_type(piece), 0, place().comm, request));
      }
    });
  }

  template <class Begin>
  void push_pieces(const Tensor& values, const Begin& begin) {
    Operations operations;
    for (std::int64_t first = 0; first < values.elements(); first += kPieceElements) {
      const Tensor piece = part_of(values, {first, std::min(first + kPieceElements, values.elements())});
      operations.push_back(std::make_unique<LibraryOperation>(
          [=](MPI_Request* request) { begin(piece, static_cast<int>(piece.elements()), request); }));
    }
    push(values, {}, std::move(operations));
  }
};

}  // namespace
}  // namespace tutti::mpi

namespace tutti {

std::unique_ptr<Communicator> make_mpi_library_communicator(World& world) {
  return std::make_unique<mpi::LibraryCommunicator>(mpi::duplicate_communicator(world));
}

}  // namespace tutti
