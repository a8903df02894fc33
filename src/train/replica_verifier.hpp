#pragma once
// Verifies that all ranks hold the same state. Each rank digests its tensors and all-gathers the sum of the digests.
// Only if the sums differ are the digests themselves all-gathered, to name the tensors and ranks that differ.

#include "rank_context.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// A tensor that must be equal on all ranks.
struct ReplicatedTensor {
  std::string name;  // as in a checkpoint, with its group: "parameters/conv1/weight"
  Tensor values;
};

// The differences between ranks; the same on all ranks.
struct Divergence {
  struct Difference {
    std::string tensor;
    std::vector<int> ranks;  // those that differ from the majority; empty: there is no majority
  };
  std::vector<Difference> differences;
  int of_ranks = 0;
  std::vector<std::string> hosts;  // by rank, for text(); empty: unknown

  std::vector<std::string> tensors() const;
  // The ranks in the minority, ascending; all, if some tensor has no majority.
  std::vector<int> ranks() const;
  // "rank 2 on node7 differs from all others in parameters/conv1/weight"
  std::string text() const;
};

class ReplicaVerifier {
 public:
  // The context and the tensors' memory are borrowed.
  ReplicaVerifier(const RankContext& context, const std::vector<ReplicatedTensor>& tensors);

  // Makes the next compare() cover the current values, too. Call it on all ranks before the tensors are overwritten
  // with the values of one rank. Asynchronous.
  void record();
  // Empty: all ranks hold the same. Collective. Waits.
  std::optional<Divergence> compare();

 private:
  using Digests = std::vector<std::int64_t>;

  // Digests of the recorded and the current values. Drops the records.
  Digests digests();
  Divergence divergence(const Digests& digests);

  const RankContext& context_;
  std::vector<std::string> names_;
  std::vector<std::uint64_t> starts_;
  std::vector<DigestedTensor> tensors_;
  Buffer digests_;  // i64 [tensors], sums since the last comparison
  std::uint64_t records_ = 0;
};

}  // namespace tutti
