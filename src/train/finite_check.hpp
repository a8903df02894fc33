#pragma once
// Whether a step's losses and gradients are finite: every rank looks at its own gradients before they meet those of the
// others, and behind the last bucket tells all ranks what it has found. So all come to the same verdict on the same
// step, and know whom and what to name. Weights that the sum over the ranks, or an update, makes infinite show in the
// losses and gradients of the step after.

#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/train/safeguards.hpp"

#include "exact_sum.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// What ends a run in which `finding` has come about; all ranks throw it.
inline constexpr const char* kNotFiniteRemedy = "lower --lr, or warm up with --warmup-epochs 1";
Error not_finite_error(const std::string& finding, const char* remedy = kNotFiniteRemedy);

// All borrowed but the names.
struct FiniteCheckRequest {
  Backend& backend;
  Communicator& communicator;
  const ParameterArena& arena;
  ExactSum* exact = nullptr;         // knows the greatest gradients of all parts; null: they are looked at here
  int most_players = 1;              // of any rank; the same on every rank, as is all that follows
  int steps_late = 0;                // the verdict may come, where the host need not wait for it
  OnNotFinite on_not_finite{};       // steps that are to be left out are waited for
  std::vector<std::string> hosts{};  // by rank; empty: not told
};

class FiniteCheck {
 public:
  // So many steps left out in a row end the run: the weights are broken, or the data.
  static constexpr std::int64_t kMostInARow = 10;

  explicit FiniteCheck(FiniteCheckRequest request);

  // Gradients [0, final_elements) of this rank's total are final, and those not looked at not yet given away: one
  // search. Asynchronous.
  void look(Stream& stream, std::int64_t final_elements);
  // After all of them: how many losses were not finite, i64 [1] each, and the step's batches. Collective. Asynchronous.
  void pass_on(Stream& stream, const std::vector<Tensor>& bad_losses, std::span<const Batch> batches);
  // After the exchange is finished: whether the step, counted from 1, may change anything. Throws on all ranks where
  // it, or one up to steps_late before, ends the run.
  bool judge(Stream& stream, std::int64_t step);
  // Waits for the verdicts on all steps. Throws likewise.
  void settle(Stream& stream);
  // Of verdicts that are still to come, and of steps that were left out.
  void forget();

  // The step judged last, if it is left out.
  std::optional<SkippedReport> take_skipped() { return std::exchange(skipped_, std::nullopt); }

 private:
  // What a rank tells of a step, i32: of its gradients, weights and images, as NotFiniteSearch::found; and from there
  // on, by player, how many losses were not finite, i64.
  enum Column : std::int64_t { kGradients, kWeights, kImages, kLosses = 4 };
  struct Told {
    std::int64_t step = 0;  // 0: nothing, or it has been looked at
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
  bool verdict_on(Stream& stream, Told& told);
  Finding finding_in(const Told& told) const;
  // As NotFiniteSearch::found says; null: none.
  const ParameterSlice* slice_found(std::int32_t found) const;
  std::string words(const Finding& finding, std::int64_t step) const;

  FiniteCheckRequest parts_;
  std::int64_t columns_;
  Shape shape_;  // ranks * columns
  Buffer rows_;
  Buffer ends_;         // of the block's slices
  Buffer single_ends_;  // of as many slices of one element; the last is all there is
  std::vector<Told> told_;
  std::size_t next_ = 0;
  std::int64_t looked_at_ = 0;
  std::int64_t in_a_row_ = 0;
  std::optional<SkippedReport> skipped_;
};

}  // namespace tutti
