#pragma once
// Checks that a step's losses and gradients are finite. Every rank searches its own gradients before they are exchanged
// and all-gathers its findings after the last bucket, so that all ranks reach the same result at the same step and can
// name the rank and the tensor. Weights that the exchange or an update makes infinite are found one step later, when
// the losses and gradients computed from them are searched.

#include "tutti/base/error.hpp"
#include "tutti/train/run_observer.hpp"

#include "part_workers.hpp"
#include "recorded_work.hpp"
#include "step_check.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

inline constexpr const char* kNotFiniteRemedy = "lower --lr, or warm up with --warmup-epochs 1";
// The error that ends a run after this finding; all ranks throw it.
Error not_finite_error(const std::string& finding, const char* remedy = kNotFiniteRemedy);

// All borrowed but the names.
struct FiniteCheckRequest {
  const RankContext& context;
  const ParameterArena& arena;
  ExactAccumulator* exact = nullptr;  // has the largest gradients of all parts; null: gradients are searched here
  std::vector<Tensor> bad_losses{};   // the numbers of this rank's losses that are not finite, i64 [1] each
  int max_workers_of_any = 1;         // of any rank; this and all that follows are equal on all ranks
  int max_delay_steps = 0;            // the result of a step is waited for at most this many steps later
  OnNotFinite on_not_finite{};        // skip: waits for the result of every step
  std::vector<std::string> hosts{};   // by rank; empty: unknown
};

class FiniteCheck final : public StepCheck {
 public:
  // This many skipped steps in a row end the run: the weights or the data are broken.
  static constexpr std::int64_t kMaxConsecutiveSkips = 10;

  explicit FiniteCheck(FiniteCheckRequest request);

  // Searches the gradients of this rank's total up to ready_elements, after those searched before.
  void before_exchange(std::int64_t ready_elements) override;
  void after_parts(const PartsOfStep& parts) override;
  // Throws on all ranks if this step, or one up to max_delay_steps before it, ends the run.
  StepOutcome after_exchange(const PartsOfStep& parts, StepResult& result) override;
  // Whether after_exchange() returns before the step's findings are known.
  bool is_delayed() const { return pending_.size() > 1; }
  // Waits for the results of all steps. Throws as after_exchange() does.
  void synchronize();

  // The same check in the recorded work of an update, of a single rank and if it is delayed. The unfinished gradients
  // (or null) are searched in place of those that they will become.
  RecordedWork::Key key(const PartsOfStep& parts, const UnfinishedGradients* unfinished) const;
  void check_in_update(const PartsOfStep& parts, const UnfinishedGradients* unfinished);
  // Call it when that work is enqueued. Throws as after_exchange() does.
  void after_update(const PartsOfStep& parts) { check(parts.step + 1); }

 private:
  // A rank's row for a step, i32: the findings of NotFiniteSearch for its gradients, weights and images, then for each
  // worker the number of losses that are not finite, i64.
  enum Column : std::int64_t { kGradients, kWeights, kImages, kLosses = 4 };
  struct PendingCheck {
    std::int64_t step = 0;  // 0: empty, or checked
    Buffer rows;            // in host memory
    std::unique_ptr<Event> copied;
  };

  void search_unfinished(const UnfinishedGradients& unfinished);
  // Completes this rank's findings. Gradients that were not searched before are searched now.
  void find(std::span<const Batch> batches, const UnfinishedGradients* unfinished);
  // Copies the findings to the host, for the next check().
  void copy_findings();
  // Empty: the step, counted from 1, may update the weights, as far as is known.
  std::optional<SkippedReport> check(std::int64_t step);
  Tensor cell(std::int64_t column, std::int64_t width = 1) const;  // of this rank's row
  std::optional<SkippedReport> result_of(PendingCheck& check);
  // The slice that a NotFiniteSearch::found, not 0, names.
  const ParameterSlice& slice_found(std::int32_t found) const;
  // `row` is that of the first of the ranks with a finding.
  std::string message(std::span<const std::int32_t> row, const std::vector<int>& ranks, std::int64_t step) const;

  FiniteCheckRequest request_;
  std::int64_t columns_;
  OwnedTensor rows_;         // i32 [ranks * columns]; its findings stay until they are seen
  OwnedTensor ends_;         // of the slices, in the block
  OwnedTensor single_ends_;  // for slices of one element each, and one without a limit
  std::vector<PendingCheck> pending_;
  std::size_t next_ = 0;
  std::int64_t searched_ = 0;
  std::int64_t in_a_row_ = 0;
};

// The check of a step that takes place in its update.
struct RecordedCheck {
  FiniteCheck& check;
  const PartsOfStep& parts;
  UnfinishedGradients* unfinished = nullptr;
};

}  // namespace tutti
