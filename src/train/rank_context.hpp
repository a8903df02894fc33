#pragma once
// What the classes of this module work with on one rank, with collectives over a few host values.

#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/data/part_map.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstdint>
#include <vector>

namespace tutti {

// A range of a flat block.
Tensor elements_of(const Tensor& block, IndexRange range);

// Copies values into memory of the backend, as i64. Waits for the copy.
Buffer upload(Backend& backend, std::vector<std::int64_t> values);

struct RankContext {
  // All borrowed.
  RankContext(Backend& backend, Communicator& communicator, RankStatus& status, Stream& stream);

  Backend& backend;
  Communicator& communicator;
  RankStatus& status;
  Stream& stream;  // of the thread that trains

  // Sums of integers, which do not depend on the order of the ranks. Collective. They wait.
  LossSums all_reduce(const LossSums& mine) const;
  std::uint64_t all_reduce(std::uint64_t mine) const;  // modulo 2^64
  // The values of all ranks, by rank. Every rank passes the same number. Collective. Waits.
  std::vector<std::int64_t> all_gather(const std::vector<std::int64_t>& mine) const;

 private:
  void all_reduce(Tensor values) const;

  Buffer scratch_;  // of the communicator: a value per rank, or the sums
};

// All-gathers `rows`, which has the same number of elements for each rank, in place. Collective. Asynchronous.
void all_gather_rows(Communicator& communicator, const Tensor& rows, Stream& stream);

// Copies between the host and sums (i64 [LossSums::kFields]) in a processor's memory. They wait for the stream.
LossSums read_sums(Backend& backend, Stream& stream, const Tensor& sums);
void write_sums(Backend& backend, Stream& stream, const Tensor& sums, const LossSums& values);

}  // namespace tutti
