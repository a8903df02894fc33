#include "ring_operation.hpp"

#include "tutti/base/error.hpp"

#include "check.hpp"

#include <fmt/format.h>

#include <cfenv>

namespace tutti::mpi {
namespace {

// Compute threads may flush denormals to zero and a helper thread may not; sums are the same bits in both.
class DefaultFloatMode {
 public:
  DefaultFloatMode() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;
  ~DefaultFloatMode() { std::fesetenv(&callers_); }

 private:
  std::fenv_t callers_{};
};

template <class T>
void add(std::byte* to, const std::byte* from, std::size_t bytes) {
  T* const sums = reinterpret_cast<T*>(to);
  const T* const terms = reinterpret_cast<const T*>(from);
  const std::size_t elements = bytes / sizeof(T);
  for (std::size_t i = 0; i < elements; ++i) sums[i] += terms[i];
}

std::span<const std::byte> memory_of(const Tensor& values) {
  return {static_cast<const std::byte*>(values.data), values.bytes()};
}

}  // namespace

RingOperation::RingOperation(const RingPlace& place, const Tensor& values, int tag,
                             std::atomic<std::uint64_t>& bytes_sent)
    : Operation(memory_of(values)), place_(place), values_(values), tag_(tag), bytes_sent_(bytes_sent) {}

RingOperation::Chunk RingOperation::chunk(int number) const {
  const int wrapped = (number + 2 * place_.size) % place_.size;
  const std::int64_t first = values_.elements() * wrapped / place_.size;
  const std::int64_t end = values_.elements() * (wrapped + 1) / place_.size;
  const std::size_t element = bytes_of(values_.type);
  return {.data = static_cast<std::byte*>(values_.data) + static_cast<std::size_t>(first) * element,
          .bytes = static_cast<std::size_t>(end - first) * element};
}

RingOperation::Chunk RingOperation::outgoing() const { return chunk(place_.rank - step_); }
RingOperation::Chunk RingOperation::incoming() const { return chunk(place_.rank - step_ - 1); }

void RingOperation::start() {
  const std::size_t largest = chunk(place_.size - 1).bytes;
  scratch_ = std::make_unique_for_overwrite<std::byte[]>(largest);
  post();
}

void RingOperation::post() {
  const Chunk in = incoming();
  const Chunk out = outgoing();
  const int next = (place_.rank + 1) % place_.size;
  const int previous = (place_.rank + place_.size - 1) % place_.size;
  received_ = false;
  if (in.bytes > 0) {
    check(MPI_Irecv(adding() ? scratch_.get() : in.data, static_cast<int>(in.bytes), MPI_BYTE, previous, tag_,
                    place_.comm, &receiving_));
  }
  if (out.bytes > 0) {
    check(MPI_Isend(out.data, static_cast<int>(out.bytes), MPI_BYTE, next, tag_, place_.comm, &sending_));
    bytes_sent_.fetch_add(out.bytes, std::memory_order_relaxed);
  }
}

Operation::State RingOperation::advance() {
  State state = State::waiting;
  while (step_is_over()) {
    state = State::moved;
    ++step_;
    if (step_ == 2 * (place_.size - 1)) return State::done;
    post();
  }
  return state;
}

bool RingOperation::step_is_over() {
  int done = 0;
  if (!received_) {
    MPI_Status status;
    check(MPI_Test(&receiving_, &done, &status));
    if (done == 0) return false;
    take_in(status);
    received_ = true;
  }
  check(MPI_Test(&sending_, &done, MPI_STATUS_IGNORE));
  return done != 0;
}

void RingOperation::take_in(const MPI_Status& status) {
  const Chunk in = incoming();
  if (in.bytes == 0) return;
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes));
  if (static_cast<std::size_t>(bytes) != in.bytes) {
    throw Error(
        ErrorSource::internal,
        fmt::format("rank {} sent {} bytes of a sum where rank {} expects {}: the ranks enqueued different sums",
                    status.MPI_SOURCE, bytes, place_.rank, in.bytes));
  }
  if (!adding()) return;
  const DefaultFloatMode mode;
  if (values_.type == ElementType::f32) {
    add<float>(in.data, scratch_.get(), in.bytes);
  } else {
    // Unsigned, so that a sum beyond the range wraps around as the library's does.
    add<std::uint64_t>(in.data, scratch_.get(), in.bytes);
  }
}

}  // namespace tutti::mpi
