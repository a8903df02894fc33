#pragma once
// Computes a part a second time on another rank, before the update, and compares what both contribute to the sums of
// the step: digests of the whole numbers of each tensor, which include the batch norm statistics, and the loss sums.
// The part, and the ranks that compute it again, are drawn from seed and step. The bits of a run do not change.

#include "tutti/train/run_observer.hpp"
#include "tutti/train/trainer_options.hpp"

#include "part_balancer.hpp"
#include "part_workers.hpp"
#include "step_check.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// The part of a step that is audited, and the ranks that do it: others with the owner's kind of processor. The owner
// audits itself if there are none.
struct AuditDraw {
  int part = 0;
  int owner = 0;
  int auditor = 0;
  std::optional<int> third{};  // decides who was wrong
  std::vector<int> ranks() const;
};
// The same on all ranks. `devices` as in TrainerContext.
AuditDraw draw_audit(std::uint64_t seed, std::int64_t step, std::int64_t global_samples, const PartMap& map,
                     const std::vector<std::string>& devices);

// All borrowed.
struct AuditedReplica {
  const TrainerContext& trainer;
  const TrainerOptions& options;
  ReplicaState& state;  // refused without an exact sum
  const BatchLoader& loader;
  const PartBalancer& balancer;
  PartWorkers& workers;
  NormSums* norm_sums;  // null: batch norm is over each part
};

class PartAudit final : public StepCheck, private PartObserver {
 public:
  // The weights must be the initial ones: some parts of the first step are computed as a reference for wrong_ranks().
  // Throws a usage error without an exact exchange.
  explicit PartAudit(const AuditedReplica& replica);

  // Observes the audited part, if this rank has it. One of the two computes it, if this rank is to audit it: the second
  // with batch norm over the whole batch, for which it needs the sums of the step's parts.
  void before_parts(PartsOfStep& parts) override;
  void after_parts(const PartsOfStep& parts) override;
  // Compares the two. Waits.
  StepOutcome after_exchange(const PartsOfStep& parts, StepResult& result) override;

 private:
  // The computations of a part of which this rank records what they contribute.
  enum Record : std::int64_t { kOwn, kAudit, kAgain, kRecords };
  // The digests of the tensors, then the fields of LossSums, then NormSums::digests().
  using Contribution = std::vector<std::int64_t>;

  void on_added(Stream& stream, IndexRange elements) override;
  void on_losses(Stream& stream, const Tensor& before, const Tensor& sums) override;

  Tensor record(std::int64_t first, std::int64_t elements) const;
  std::vector<Contribution> read_records();
  // The drawn part, read again.
  PartsOfStep audited_part(const PartsOfStep& parts);
  // Digests of what each layer writes for this part with the current weights. Records its contribution.
  std::vector<std::int64_t> trace(const PartsOfStep& part, Record record);
  // The same of some parts of the first step, with the weights as they are.
  std::vector<std::int64_t> trace_known_parts();
  // Whether they now differ from those that the initial weights gave at the start.
  bool has_changed();
  struct Repetition {
    Contribution contribution{};
    std::vector<std::int64_t> trace{};
    bool has_changed = false;  // as AuditedRank::has_changed
  };
  Repetition repeat(const PartsOfStep& parts);
  // Collective.
  WrongPartReport decide(const PartsOfStep& parts, const std::vector<Contribution>& recorded);
  std::string name_of_rank(int rank) const;
  std::string text_of(const WrongPartReport& report, const std::vector<int>& others) const;

  const RankContext& rank_;
  const Network& network_;
  ReplicaState& state_;
  ExactAccumulator& exact_;
  const PartBalancer& balancer_;
  PartWorkers& workers_;
  Initializer initializer_;
  std::uint64_t seed_;
  std::int64_t every_;
  int num_parts_;
  std::vector<std::string> hosts_;
  std::vector<std::string> devices_;
  NormSums* norm_sums_;
  PartReader read_part_;
  OwnedTensor records_;  // i64 [kRecords, slices + twice the fields of LossSums]: digests, sums before, sums after
  Record recording_ = kOwn;
  std::array<std::vector<std::int64_t>, kRecords> norm_digests_{};
  std::optional<AuditDraw> draw_;  // of the current step, if it is audited
  std::vector<std::int64_t> known_parts_;
  std::vector<std::int64_t> last_confirmed_steps_;  // by rank, the last step in which an audit confirmed it; 0: none
};

// What a rank computed for an audited part.
struct AuditedRank {
  std::vector<std::vector<std::int64_t>> first{};  // contributions: of the owner and of the auditor
  std::vector<std::int64_t> again{};               // the same once more
  bool has_changed = false;                        // computes the known parts differently than at its start
};
// The ranks whose first contribution was wrong: those that differ from what two ranks computed; else those that do not
// repeat their own; else those that have changed. Empty: this cannot be decided.
std::vector<int> wrong_ranks(const std::map<int, AuditedRank>& ranks);

}  // namespace tutti
