#pragma once
// What the classes of this module work with on one rank, with collectives over a few host values.

#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/data/part_map.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

// A flat tensor with its memory.
struct OwnedTensor {
  OwnedTensor() = default;
  // The allocator is a backend or a communicator.
  template <class Allocator>
  OwnedTensor(Allocator& allocator, std::int64_t elements, ElementType type)
      : memory(allocator.allocate(static_cast<std::size_t>(elements) * bytes_of(type))),
        values(memory.view(Shape{elements}, type)) {}
  // A copy. Asynchronous.
  OwnedTensor(Backend& backend, Stream& stream, const Tensor& original)
      : OwnedTensor(backend, original.elements(), original.type) {
    backend.copy(stream, values, original);
  }

  Buffer memory;
  Tensor values;
};

// Copies values into memory of the backend, as i64. Waits for the copy.
OwnedTensor upload(Backend& backend, std::vector<std::int64_t> values);

struct RankContext {
  // All borrowed.
  RankContext(Backend& backend, Communicator& communicator, RankStatus& status, Stream& stream);

  Backend& backend;
  Communicator& communicator;
  RankStatus& status;
  Stream& stream;  // of the thread that trains

  // Sums of integers, modulo 2^64, which do not depend on the order of the ranks. Collective. They wait.
  LossSums all_reduce(const LossSums& mine) const;
  std::uint64_t all_reduce(std::uint64_t mine) const;
  // The values of all ranks, by rank. Every rank passes the same number. Collective. Waits.
  std::vector<std::int64_t> all_gather(const std::vector<std::int64_t>& mine) const;

 private:
  void all_reduce(std::vector<std::int64_t>& values) const;

  OwnedTensor scratch_;  // of the communicator: a value per rank, or the sums
};

// All-gathers `rows`, which has the same number of elements for each rank, in place. Collective. Asynchronous.
void all_gather_rows(Communicator& communicator, const Tensor& rows, Stream& stream);

// Sums (i64 [LossSums::kFields]) in a processor's memory. Waits for the stream.
LossSums read_sums(Backend& backend, Stream& stream, const Tensor& sums);

}  // namespace tutti
