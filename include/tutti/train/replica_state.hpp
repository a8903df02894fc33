#pragma once
// What one rank holds of the training state, and the way from gradients to new weights: their sum over the rank's
// parts, the exchange with the other ranks, the checks, the optimizer and the average.

#include "tutti/nn/network_instance.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/ownership.hpp"
#include "tutti/train/trainer_options.hpp"
#include "tutti/watch/fault_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

class ExactAccumulator;
class GradientAccumulator;
class GradientExchange;
class RecordedWork;
class StepCheck;
class WeightAverage;
struct PartsOfStep;
struct RankContext;
struct RecordedCheck;
struct ReplicaShape;
struct StepRequest;
struct StepResult;

// After the exchange: the step is valid, or repeated on a coarser grid, or skipped, or an audit found a wrong part.
enum class StepOutcome { valid, repeat, skipped, wrong };

// A tensor that this rank holds whole.
struct StateTensor {
  FlipTarget target;
  std::string array;  // its name in checkpoints, with its group: "parameters/conv1/weight"; empty: they do not have it
  Tensor values;
};

class ReplicaState {
 public:
  // All borrowed. The weights are 0 until initialize() or restore().
  ReplicaState(const TrainerContext& context, const TrainerOptions& options, const RankContext& rank);
  ~ReplicaState();
  ReplicaState(const ReplicaState&) = delete;
  ReplicaState& operator=(const ReplicaState&) = delete;

  const RankContext& rank() const { return rank_; }
  const ParameterArena& arena() const { return arena_; }
  NetworkWeights& weights() { return weights_; }
  // The sum of the gradients of this rank's parts.
  GradientAccumulator& total() { return *total_; }
  ExactAccumulator* exact() { return exact_; }  // the same, or null: gradients are summed in f32
  const Ownership& ownership() const { return *ownership_; }
  // Whether each weight is updated by one rank and then gathered.
  bool gathers_weights() const { return ownership_->owners() != Owners::all; }
  bool is_alone() const;  // one rank
  // If not, or if something else reads or changes the gradients before the update, they must be finished.
  bool reads_gradients_once() const { return optimizer_->reads_gradients_once(); }

  // Every step passes these checks, in their order. Borrowed.
  void pass(std::vector<StepCheck*> checks) { checks_ = std::move(checks); }

  // A step: first its parts are computed.
  void before_parts(PartsOfStep& parts);
  // Makes these the gradients of this rank's only part instead: f32, the whole block; empty: zeros. Asynchronous.
  void set_gradients(const Tensor& gradients);
  // Starts the exchange of buckets whose gradients, [0, ready_elements), are ready. Collective. Asynchronous.
  void start_ready_buckets(std::int64_t ready_elements);
  // Collective. Asynchronous, unless a check waits.
  StepOutcome finish_exchange(const PartsOfStep& parts, StepResult& result);
  // The same for gradients that were set.
  StepOutcome finish_exchange(std::int64_t step);
  // Updates the weights and gathers those that other ranks update. Collective. Asynchronous.
  void update(const StepRequest& request, const RecordedCheck* check = nullptr);
  void gather_weights();

  // Runs `work` with the average in place of the weights, if there is one, and restores the weights even if it throws.
  void with_average(const std::function<void()>& work);

  // Sets random weights. Call it when the layers are planned.
  void initialize(const Network& network, const TrainerOptions& options);
  // Copies the shard's arrays to `state`: weights, statistics, optimizer and exchange state. Collective. Waits.
  void copy_to(TrainState& state, const std::optional<FileShard>& shard);
  // Restores them. Every rank has the whole state; not a collective.
  void restore(const TrainState& state);
  // Takes weights and statistics only; see Trainer::initialize_from().
  std::vector<std::string> initialize_from(const TrainState& state, bool new_head);

  // Weights and statistics and, if every rank updates everything, gradients and the optimizer's state.
  std::vector<StateTensor> tensors() const;
  Tensor gradients() const { return arena_.gradients(); }
  std::uint64_t weights_digest();
  std::optional<std::uint64_t> statistics_digest();  // empty without any
  std::optional<std::uint64_t> averages_digest();    // likewise
  std::uint64_t gradients_digest();                  // after the exchange. Collective.
  std::uint64_t optimizer_digest();                  // Collective.

  // The memory of the device for gradients and their accumulator, for the optimizer's state, and for everything here.
  std::size_t exchange_bytes() const;
  std::size_t optimizer_bytes() const;
  std::size_t memory_bytes() const;
  // What memory_bytes() will be.
  static std::int64_t estimate_bytes(const ReplicaShape& shape);

 private:
  void begin_with_weights();
  // Updates the elements that this rank owns; refreshes the weights if it owns all. Asynchronous.
  void update_owned(UnfinishedGradients* unfinished);
  OptimizerContext optimizer_context() const;
  // The digest of the trained tensors of these blocks, whose owned pieces are `where`. Collective.
  std::uint64_t owned_digest(const std::vector<OptimizerSlot>& blocks, IndexRange OwnedPiece::*where);

  const RankContext& rank_;
  Backend& backend_;
  Stream& stream_;
  ParameterArena arena_;
  NetworkWeights weights_;
  std::unique_ptr<GradientAccumulator> total_;
  ExactAccumulator* exact_ = nullptr;
  std::unique_ptr<Ownership> ownership_;
  std::unique_ptr<GradientExchange> exchange_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<RecordedWork> recorded_updates_;
  std::unique_ptr<WeightAverage> average_;  // null: none is kept
  std::vector<StepCheck*> checks_;
};

// The parameters and statistics that a state of a network whose last layer may differ does not give to this one, all of
// the last layer: they are missing or have another shape there, or `new_head` is set. Throws an input error for any
// other array that is missing on one side or has another shape.
std::vector<std::string> except_head(const ParameterLayout& layout, const TrainState& state, bool new_head);

// Flips a bit of one of tensors(), as an injected fault. Waits.
void flip(ReplicaState& state, const BitFlip& flip);

}  // namespace tutti
