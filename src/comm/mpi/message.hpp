#pragma once
// Where messages go from, and what becomes of those that arrive: their size checked, their values added to this rank's.

#include "tutti/backend/tensor.hpp"

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti::mpi {

enum class StarDirection { sum_at_first, spread_from_first };

// A rank among the others, and what it counts there.
struct RankPlace {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::atomic<std::uint64_t>& bytes_sent;

  // The rank that is so many places behind this one, less than `size`.
  int rank_after(int places) const { return (rank + places) % size; }
};

struct Given {
  int rank;
  std::size_t bytes;
};
// Throws when what another rank gave is not of this size: the ranks enqueued different operations.
void require_bytes(const Given& given, std::size_t bytes, int rank);
// Likewise of the message that came.
void require_bytes(const MPI_Status& status, std::size_t bytes, int rank);

// to += from, f32 or i64; the same bits in every thread, whatever its treatment of denormal numbers.
void add(ElementType type, std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace tutti::mpi
