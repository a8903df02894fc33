#pragma once
// Checks that a step's losses and gradients are finite. Every rank searches its own gradients before they are exchanged
// and all-gathers its findings after the last bucket, so that all ranks reach the same result at the same step and can
// name the rank and the tensor. Weights that the exchange or an update makes infinite are found one step later, when
// the losses and gradients computed from them are searched.

#include "tutti/base/error.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/train/trainer_options.hpp"

#include "gradient_accumulator.hpp"
#include "recorded_work.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
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
  int max_workers_of_any = 1;         // of any rank; this and all that follows are equal on all ranks
  int max_delay_steps = 0;            // the result of a step is waited for at most this many steps later
  OnNotFinite on_not_finite{};        // skip: waits for the result of every step
  std::vector<std::string> hosts{};   // by rank; empty: unknown
};

class FiniteCheck {
 public:
  // This many skipped steps in a row end the run: the weights or the data are broken.
  static constexpr std::int64_t kMaxConsecutiveSkips = 10;

  explicit FiniteCheck(FiniteCheckRequest request);

  // Searches the gradients of this rank's total up to ready_elements, after those searched before. Call it before their
  // exchange starts. Asynchronous.
  void search(std::int64_t ready_elements);
  // Completes this rank's findings, with the numbers of losses that are not finite, i64 [1] each. Gradients that were
  // not searched before are searched now; of those that are unfinished (or null), the unfinished values. Asynchronous.
  void find(const std::vector<Tensor>& bad_losses, std::span<const Batch> batches,
            const UnfinishedGradients* unfinished = nullptr);
  // All-gathers the findings. Collective. Asynchronous.
  void gather() { all_gather_rows(request_.context.communicator, rows_.values, request_.context.stream); }
  // Copies them to the host, for the next check(). Call it after the exchange. Asynchronous.
  void copy_findings();
  // Returns whether the step, counted from 1, may update the weights. Throws on all ranks if it, or a step up to
  // max_delay_steps before it, ends the run.
  bool check(std::int64_t step);
  // Whether check() returns before the step's findings are known.
  bool is_delayed() const { return pending_.size() > 1; }
  // What find() and copy_findings() depend on.
  RecordedWork::Key key(std::span<const Batch> batches) const;
  // Waits for the results of all steps. Throws as check() does.
  void synchronize();
  // Drops pending results and the count of skipped steps.
  void reset();

  // The last step checked, if it was skipped.
  std::optional<SkippedReport> take_skipped() { return std::exchange(skipped_, std::nullopt); }

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
  Tensor cell(std::int64_t column, std::int64_t width = 1) const;  // of this rank's row
  bool result_of(PendingCheck& check);
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
  std::optional<SkippedReport> skipped_;
};

}  // namespace tutti
