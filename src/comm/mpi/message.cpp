#include "message.hpp"

#include "tutti/base/error.hpp"

#include "check.hpp"

#include <fmt/format.h>

#include <cfenv>
#include <cstdint>

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
void add_as(std::byte* to, const std::byte* from, std::size_t bytes) {
  T* const sums = reinterpret_cast<T*>(to);
  const T* const terms = reinterpret_cast<const T*>(from);
  const std::size_t elements = bytes / sizeof(T);
  for (std::size_t i = 0; i < elements; ++i) sums[i] += terms[i];
}

}  // namespace

void require_bytes(const Given& given, std::size_t bytes, int rank) {
  if (given.bytes == bytes) return;
  throw Error(ErrorSource::internal,
              fmt::format("rank {} gave {} bytes to a sum where rank {} expects {}: the ranks enqueued different sums",
                          given.rank, given.bytes, rank, bytes));
}

void require_bytes(const MPI_Status& status, std::size_t bytes, int rank) {
  int came = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &came));
  require_bytes(Given{status.MPI_SOURCE, static_cast<std::size_t>(came)}, bytes, rank);
}

void add(ElementType type, std::byte* to, const std::byte* from, std::size_t bytes) {
  const DefaultFloatMode mode;
  if (type == ElementType::f32) {
    add_as<float>(to, from, bytes);
  } else {
    // Unsigned, so that a sum beyond the range wraps around as the library's does.
    add_as<std::uint64_t>(to, from, bytes);
  }
}

void wait_for(MPI_Request& request, std::chrono::microseconds longest_sleep, std::source_location where) {
  Backoff backoff(longest_sleep);
  for (;;) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), where);
    if (done != 0) return;
    backoff.wait();
  }
}

}  // namespace tutti::mpi
