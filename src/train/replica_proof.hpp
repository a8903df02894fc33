#pragma once
// Whether all ranks hold the same state: each digests its tensors, and the sums of its digests go to all. Only where
// these differ the digests themselves do, and say which tensors differ, and on which ranks. What becomes of it is the
// caller's business.

#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// One that is to be equal on all ranks.
struct ReplicatedTensor {
  std::string name;  // as in a checkpoint, with its group: "parameters/conv1/weight"
  Tensor values;
};

// Differences between ranks, equal on all of them.
struct Divergence {
  struct Difference {
    std::string tensor;
    std::vector<int> ranks;  // that differ from what more than half of all ranks hold; empty: no value has so many
  };
  std::vector<Difference> differences;
  int of_ranks = 0;
  std::vector<std::string> hosts;  // by rank, for text(); empty: not told

  std::vector<std::string> tensors() const;
  // In the minority, ascending; all, where some tensor has no majority.
  std::vector<int> ranks() const;
  // "rank 2 on node7 differs from all others in parameters/conv1/weight"
  std::string text() const;
};

class ReplicaProof {
 public:
  // Borrowed, the tensors' memory too.
  ReplicaProof(Backend& backend, Communicator& communicator, RankStatus& rank_status,
               const std::vector<ReplicatedTensor>& tensors);

  // The next compare() is about what the tensors hold now, too: to be called on all ranks before they are overwritten
  // with what one rank has. Asynchronous.
  void note(Stream& stream);
  // Empty: they are equal on all ranks. Collective. Waits.
  std::optional<Divergence> compare(Stream& stream);

 private:
  using Words = std::vector<std::int64_t>;

  // Of what was noted and of what the tensors hold now. Nothing is noted any more.
  Words digests(Stream& stream);
  // Of all ranks, by rank. `memory` is the communicator's, for all of them. Collective. Waits.
  Words gather(Stream& stream, const Words& mine, const Buffer& memory);
  Divergence divergence(Stream& stream, const Words& digests);

  Backend& backend_;
  Communicator& communicator_;
  RankStatus& rank_status_;
  std::vector<std::string> names_;
  std::vector<std::uint64_t> starts_;
  std::vector<DigestedTensor> tensors_;
  Buffer digests_;  // i64 [tensors], summed up since the last comparison
  Buffer totals_;   // i64 [ranks]
  std::uint64_t notes_ = 0;
};

}  // namespace tutti
