#pragma once
// Whether all ranks hold the same state: each digests its tensors and all-gathers the sum of its digests. Only where
// the sums differ the digests themselves are all-gathered: they name the tensors that differ, and the ranks.

#include "rank_context.hpp"

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
  std::vector<std::string> hosts;  // by rank, for text(); empty: unknown

  std::vector<std::string> tensors() const;
  // In the minority, ascending; all, where some tensor has no majority.
  std::vector<int> ranks() const;
  // "rank 2 on node7 differs from all others in parameters/conv1/weight"
  std::string text() const;
};

class ReplicaProof {
 public:
  // The context and the tensors' memory are borrowed.
  ReplicaProof(const RankContext& rank, const std::vector<ReplicatedTensor>& tensors);

  // Makes the next compare() cover what the tensors hold now, too: to be called on all ranks before they are
  // overwritten with what one rank has. Asynchronous.
  void note();
  // Empty: they are equal on all ranks. Collective. Waits.
  std::optional<Divergence> compare();

 private:
  using Words = std::vector<std::int64_t>;

  // Of what was noted and of what the tensors hold now. Drops what was noted.
  Words digests();
  Divergence divergence(const Words& digests);

  const RankContext& rank_;
  std::vector<std::string> names_;
  std::vector<std::uint64_t> starts_;
  std::vector<DigestedTensor> tensors_;
  Buffer digests_;  // i64 [tensors], summed up since the last comparison
  std::uint64_t notes_ = 0;
};

}  // namespace tutti
