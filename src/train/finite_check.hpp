#pragma once
// Whether a step's losses and gradients are finite: every rank searches its own gradients before they are exchanged,
// and all-gathers what it has found behind the last bucket. So all ranks come to the same result on the same step, and
// can name the rank and the tensor. Weights that the exchange or an update makes infinite show in the losses and
// gradients of the step after.

#include "tutti/base/error.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/train/trainer_options.hpp"

#include "gradient_total.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// The error that ends a run because of this finding; all ranks throw it.
inline constexpr const char* kNotFiniteRemedy = "lower --lr, or warm up with --warmup-epochs 1";
Error not_finite_error(const std::string& finding, const char* remedy = kNotFiniteRemedy);

// All borrowed but the names.
struct FiniteCheckRequest {
  const RankContext& rank;
  const ParameterArena& arena;
  ExactSum* exact = nullptr;         // knows the greatest gradients of all parts; null: they are searched here
  int most_workers = 1;              // of any rank; the same on every rank, as is all that follows
  int steps_late = 0;                // how late the result may come, where the host need not wait for it
  OnNotFinite on_not_finite{};       // skip: every step is waited for
  std::vector<std::string> hosts{};  // by rank; empty: unknown
};

class FiniteCheck {
 public:
  // This many steps left out in a row end the run: the weights are broken, or the data.
  static constexpr std::int64_t kMostInARow = 10;

  explicit FiniteCheck(FiniteCheckRequest request);

  // Searches the gradients of this rank's total up to final_elements that have not been searched; to be called before
  // their exchange starts. Asynchronous.
  void search(std::int64_t final_elements);
  // After all of them: all-gathers what was found, with the number of losses that were not finite, i64 [1] each.
  // Collective. Asynchronous.
  void gather(const std::vector<Tensor>& bad_losses, std::span<const Batch> batches);
  // After the exchange is finished: whether the step, counted from 1, may change anything. Throws on all ranks where
  // it, or one up to steps_late before, ends the run.
  bool check(std::int64_t step);
  // Waits for the results of all steps. Throws likewise.
  void settle();
  // Drops the results that are still to come, and the count of steps left out.
  void forget();

  // The last step checked, if it is left out.
  std::optional<SkippedReport> take_skipped() { return std::exchange(skipped_, std::nullopt); }

 private:
  // A rank's row for a step, i32: of its gradients, weights and images, as NotFiniteSearch::found; and from there
  // on, by worker, how many losses were not finite, i64.
  enum Column : std::int64_t { kGradients, kWeights, kImages, kLosses = 4 };
  struct Found {
    std::int64_t step = 0;  // 0: nothing, or it has been checked
    Buffer rows;            // the host's
    std::unique_ptr<Event> copied;
  };
  struct Finding {
    std::int64_t ranks = 0;  // that have any
    int rank = 0;            // the first of them
    const ParameterSlice* weights = nullptr;
    const ParameterSlice* gradients = nullptr;
    bool loss = false;
    bool images = false;
  };

  Tensor rows() const { return rows_.view(shape_, ElementType::i32); }
  Tensor cell(std::int64_t column, std::int64_t width = 1) const;  // of this rank's row
  bool result_of(Found& found);
  Finding finding_in(const Found& found) const;
  // As NotFiniteSearch::found says; null: none.
  const ParameterSlice* slice_found(std::int32_t found) const;
  std::string words(const Finding& finding, std::int64_t step) const;

  FiniteCheckRequest request_;
  std::int64_t columns_;
  Shape shape_;  // ranks * columns
  Buffer rows_;
  Buffer ends_;         // of the block's slices
  Buffer single_ends_;  // of as many slices of one element; the last is all there is
  std::vector<Found> found_;
  std::size_t next_ = 0;
  std::int64_t searched_ = 0;
  std::int64_t in_a_row_ = 0;
  std::optional<SkippedReport> skipped_;
};

}  // namespace tutti
