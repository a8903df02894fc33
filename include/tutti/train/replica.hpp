#pragma once
// One rank's copy of the network during training: all that a step needs, and the order of a step. The trainer adds
// epochs, reports and checkpoints.

#include "tutti/nn/network_instance.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/train/trainer_options.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

class PhaseTimeline;
class RecordedWork;
class ExactAccumulator;
class FiniteCheck;
class GradientExchange;
class GradientAccumulator;
class NormSums;
class Ownership;
class PartAudit;
class PartBalancer;
class PartWorkers;
class ReplicaVerifier;
class WeightAverage;
struct OwnedTensor;
struct BitFlip;
struct FlipTarget;
struct OwnedPiece;
struct RankContext;
struct ReplicatedTensor;

// The time of one step on one rank, in seconds, with its compute layer by layer.
struct StepTimes {
  // Compute until `ready_elements` elements of the gradients were ready. The first includes the forward pass.
  struct Interval {
    double seconds = 0;
    std::int64_t ready_elements = 0;
  };

  double input = 0;                // waiting for the batch
  std::vector<Interval> compute;   // of this rank's parts, in backward order
  double overlapped_exchange = 0;  // making progress on the exchange in between
  double waiting = 0;              // for the exchange afterwards, and for weights that other ranks update
  double update = 0;               // of the weights that this rank owns

  double compute_seconds() const {
    double seconds = 0;
    for (const Interval& interval : compute) seconds += interval.seconds;
    return seconds;
  }
  double exchange() const { return overlapped_exchange + waiting; }
  double total() const { return input + compute_seconds() + exchange() + update; }
};

struct StepRequest {
  std::int64_t step = 0;     // of the run, from 0
  std::int64_t epoch = 0;    // that contains it
  std::int64_t updates = 0;  // steps before it that were not skipped
  double learning_rate = 0;
  double average_share = 0;     // of the new weights in their average; 0: it is not changed
  std::size_t first_layer = 0;  // of TrainPass
  bool digests_gradients = false;
  ReplicaVerifier* verifier = nullptr;  // notes the weights before the update; borrowed
  StepTimes* times = nullptr;           // receives the times; the step then waits after each phase; borrowed
};

struct StepResult {
  double weight = 0;                                // the sum of the class weights of all labels; 0: there are none
  double own_weight = 0;                            // that of this rank's parts
  std::optional<std::uint64_t> gradients_digest{};  // if it was requested and the step was not skipped
  std::optional<SkippedReport> skipped{};
  std::optional<WrongPartReport> wrong_part{};  // the state is then lost
  std::int64_t repetitions = 0;                 // on a coarser grid (exact)
};

// After the exchange: the step is valid, or repeated on a coarser grid, or skipped, or an audit found a wrong part.
enum class StepOutcome { valid, repeat, skipped, wrong };

class Replica {
 public:
  // Initializes the weights and plans every shape that can occur. All borrowed. Collective.
  Replica(const TrainerContext& context, const TrainerOptions& options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Computes the loader's next step. Collective. Asynchronous.
  StepResult step(const StepRequest& request);
  // Reassigns parts to ranks if that is due. Call it after each step. Collective.
  void balance_parts();
  // Waits until all steps so far are done.
  void synchronize();

  // The following compute a step in pieces, for measurements.

  // Makes these the gradients of this rank's only part: f32, the whole block; empty: zeros. Asynchronous.
  void set_gradients(const Tensor& gradients);
  // Starts the exchange of buckets whose gradients, [0, ready_elements), are ready. Collective. Asynchronous.
  void start_ready_buckets(std::int64_t ready_elements);
  // Collective. Asynchronous, unless the exchange is exact.
  StepOutcome finish_exchange(std::int64_t step, std::span<const Batch> batches = {});
  // Updates the weights and gathers those that other ranks update. Collective. Asynchronous.
  void update(const StepRequest& request);
  void gather_weights();

  // Runs `work` with the average in place of the weights, if there is one, and restores the weights even if it throws.
  void with_average(const std::function<void()>& work);

  // Copies the shard's arrays to `state`: weights, statistics, optimizer and exchange state. Collective. Waits.
  void copy_state_to(TrainState& state, const std::optional<FileShard>& shard);
  // Restores them. Every rank has the whole state; not a collective.
  void restore(const TrainState& state);
  // Takes weights and statistics only; see Trainer::initialize_from().
  std::vector<std::string> initialize_from(const TrainState& state, bool new_head);

  // The tensors that are equal on all ranks between steps: weights, statistics, the exponents of the exact exchange,
  // and the optimizer's state if every rank updates everything.
  std::vector<ReplicatedTensor> replicated() const;
  // Whether each weight is updated by one rank and then gathered.
  bool gathers_weights() const;
  // The tensors that this rank holds whole. flip() flips a bit of one, as an injected fault. Waits.
  std::vector<FlipTarget> local_tensors() const;
  void flip(const BitFlip& flip);

  Tensor gradients() const { return arena_.gradients(); }
  std::uint64_t weights_digest();
  std::optional<std::uint64_t> statistics_digest();  // empty without any
  std::optional<std::uint64_t> averages_digest();    // likewise
  std::uint64_t optimizer_digest();                  // Collective.

  // Of each bucket: its end in the block of gradients, ascending, and whether any of its slices has a gradient.
  const std::vector<std::int64_t>& bucket_ends() const;
  const std::vector<bool>& exchanged_buckets() const;
  double owned_fraction() const;        // of the block, updated by this rank
  std::size_t memory_bytes() const;     // of the device: activations, weights, gradients and optimizer state
  std::size_t exchange_bytes() const;   // of these, for gradients and their accumulator
  std::size_t optimizer_bytes() const;  // and for the optimizer's state

  const RankContext& context() const { return *context_; }
  BatchLoader& loader() { return loader_; }
  const BatchLoader& loader() const { return loader_; }
  PartWorkers& workers() { return *workers_; }
  const PartWorkers& workers() const { return *workers_; }
  PartBalancer& balancer() { return *balancer_; }
  FiniteCheck& finite_check() { return *finite_check_; }

 private:
  struct LocalTensor;

  // finish_exchange() and update() as one piece of recorded work.
  void update_at_once(const StepRequest& request, std::span<const Batch> batches);
  void begin_with_weights();
  void add_to_average(const StepRequest& request);
  // Updates the elements that this rank owns; refreshes the weights if it owns all. Asynchronous.
  void update_owned(UnfinishedGradients* unfinished = nullptr);
  bool is_alone() const;
  OptimizerContext optimizer_context() const;
  // Call it after the exchange. Collective.
  std::uint64_t gradients_digest();
  // The digest of the trained tensors of these blocks, whose owned pieces are `where`. Collective.
  std::uint64_t owned_digest(const std::vector<OptimizerSlot>& blocks, IndexRange OwnedPiece::*where);
  GradientAccumulator& total();
  // The tensors that this rank holds whole.
  std::vector<LocalTensor> whole_tensors() const;

  Backend& backend_;
  std::unique_ptr<RankStatus> own_status_;  // if the caller has none
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<RankContext> context_;
  std::uint64_t seed_;
  std::unique_ptr<PhaseTimeline> timeline_;
  ParameterArena arena_;
  NetworkWeights weights_;
  std::unique_ptr<PartBalancer> balancer_;
  BatchLoader loader_;
  std::unique_ptr<NormSums> norm_sums_;  // null: batch norm is over each part
  std::unique_ptr<PartWorkers> workers_;
  std::unique_ptr<GradientAccumulator> float_total_;
  std::unique_ptr<ExactAccumulator> exact_;  // null: gradients are summed in f32
  std::unique_ptr<FiniteCheck> finite_check_;
  std::unique_ptr<Ownership> ownership_;
  std::unique_ptr<OwnedTensor> rounded_;  // the gradients that are sent in bf16
  std::unique_ptr<GradientExchange> exchange_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<RecordedWork> recorded_updates_;
  std::unique_ptr<WeightAverage> average_;  // null: none is kept
  std::unique_ptr<PartAudit> audit_;        // null: no parts are audited
};

}  // namespace tutti
