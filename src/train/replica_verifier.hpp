#pragma once
// Verifies that all ranks hold the same state. Each rank digests its tensors and all-gathers the sum of the digests.
// Only if the sums differ are the digests themselves all-gathered, to name the tensors and ranks that differ.

#include "tutti/train/run_observer.hpp"

#include "rank_context.hpp"
#include "step_check.hpp"

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

class ReplicaVerifier final : public StepCheck {
 public:
  // The context and the tensors' memory are borrowed. `hosts` are those of the ranks, for messages; empty: unknown.
  ReplicaVerifier(const RankContext& context, const std::vector<ReplicatedTensor>& tensors,
                  std::vector<std::string> hosts);

  // Makes the next compare() cover the current values, too. Call it on all ranks before the tensors are overwritten
  // with the values of one rank. Asynchronous.
  void record();
  // Records what an update that gathers weights from their owners overwrites.
  StepOutcome after_exchange(const PartsOfStep&, StepResult&) override {
    record();
    return StepOutcome::valid;
  }
  // Empty: all ranks hold the same. Else what differs, the same on all ranks, without steps; its text names the ranks:
  // "rank 2 on node7 differs from all others in parameters/conv1/weight". Collective. Waits.
  std::optional<DivergenceReport> compare();

 private:
  using Digests = std::vector<std::int64_t>;

  // Digests of the recorded and the current values. Drops the records.
  Digests digests();

  const RankContext& context_;
  std::vector<std::string> hosts_;
  std::vector<std::string> names_;
  std::vector<DigestedTensor> tensors_;
  OwnedTensor digests_;  // i64 [tensors], sums since the last comparison
  std::uint64_t records_ = 0;
};

}  // namespace tutti
