#pragma once
// One rank's copy of the network in training: everything that a step needs, and the order of a step. Epochs, reports
// and checkpoints are the trainer's.

#include "tutti/nn/parameter_arena.hpp"
#include "tutti/nn/part_context.hpp"
#include "tutti/train/trainer_options.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

class DeviceTimeline;
class ExactSum;
class FiniteCheck;
class GradientExchange;
class GradientTotal;
class Ownership;
class PartAssignment;
class PartWorkers;
class ReplicaProof;
class StepClock;
struct BitFlip;
struct FlipTarget;
struct RankContext;
struct ReplicatedTensor;

// Where the time of one step went on one rank, in seconds, and how its compute advances layer by layer.
struct StepTimes {
  // Compute until `final_elements` elements of the gradients were final; the first has the forward pass in it.
  struct Interval {
    double seconds = 0;
    std::int64_t final_elements = 0;
  };

  double input = 0;               // waiting for the batch
  std::vector<Interval> compute;  // of this rank's parts, in the order of the backward pass
  double driving = 0;             // moving the exchange along between them
  double waiting = 0;             // for the exchange afterwards, and for weights that others have updated
  double update = 0;              // of what this rank owns

  double compute_seconds() const {
    double seconds = 0;
    for (const Interval& interval : compute) seconds += interval.seconds;
    return seconds;
  }
  double exchange() const { return driving + waiting; }
  double total() const { return input + compute_seconds() + exchange() + update; }
};

struct StepRequest {
  std::int64_t step = 0;     // of the run, counted from 0
  std::int64_t updates = 0;  // how many steps before it have changed the weights
  double learning_rate = 0;
  bool digests_gradients = false;
  ReplicaProof* proof = nullptr;  // notes the weights before their update; borrowed
  StepTimes* times = nullptr;     // gets the times of the phases, which are then waited for; borrowed
};

// After the exchange: the gradients stand, or the step is to be computed again on a coarser grid, or it changes
// nothing.
enum class StepOutcome { stands, again, left_out };

class Replica {
 public:
  // Initialises the weights and plans every shape that can occur. All borrowed. Collective.
  Replica(const TrainerParts& parts, const TrainerOptions& options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // The loader's next step. Returns the digest of the gradients when it was asked for and the step is not left out.
  // Collective. Asynchronous.
  std::optional<std::uint64_t> step(const StepRequest& request);
  // To be called after a step: parts may be assigned anew. Collective.
  void balance_parts();
  // Returns when all steps so far are done.
  void settle();

  // The pieces of which a step is made, for whoever measures them. Makes these the gradients of this rank's only
  // part: f32, the whole block; empty: zeros. Asynchronous.
  void set_gradients(const Tensor& gradients);
  // Gradients [0, final_elements) of this rank are final: starts the exchange of their buckets. Collective.
  // Asynchronous.
  void ready(std::int64_t final_elements);
  // Collective. Asynchronous, unless the exchange is exact.
  StepOutcome finish_exchange(std::int64_t step, std::span<const Batch> batches = {});
  // The optimizer's update, and the weights that other ranks have updated. Collective. Asynchronous.
  void update(const StepRequest& request);
  void gather_weights();

  // Adds weights, statistics, optimizer state and the exchange's state to a checkpoint's state: the arrays that the
  // share takes. Collective. Waits.
  void add_to(TrainState& state, const std::optional<FileShare>& share);
  // Restores all of these from a state, which every rank has. Waits for nobody else.
  void restore(const TrainState& state);
  // Weights and statistics alone, as Trainer::start_from() says.
  std::vector<std::string> start_from(const TrainState& state);

  // What is equal on all ranks between two steps: weights, statistics, and where every rank updates everything, the
  // optimizer's state; and the exact exchange's exponents.
  std::vector<ReplicatedTensor> replicated() const;
  // Whether weights and statistics are updated by one rank and then gathered.
  bool gathers_weights() const;
  // Tensors of which this rank has a whole copy of its own; and flips a bit of one, as an injected fault. Waits.
  std::vector<FlipTarget> local_tensors() const;
  void flip(const BitFlip& flip);

  Tensor gradients() const { return arena_.gradients(); }
  std::uint64_t weights_digest();
  std::optional<std::uint64_t> statistics_digest();  // of a network that has any
  std::uint64_t optimizer_digest();                  // Collective.

  // Where each bucket of the exchange ends, in elements of the block of gradients, ascending.
  const std::vector<std::int64_t>& bucket_ends() const;
  // The part of the block that this rank updates, 0 to 1.
  double owned_share() const;
  // Device memory for activations, weights, gradients and optimizer state.
  std::size_t memory_bytes() const;
  // Of it, the block of gradients and what they are added up in; and the optimizer's state.
  std::size_t exchange_bytes() const;
  std::size_t optimizer_bytes() const;
  // How often the exact exchange had a step computed again on a coarser grid.
  std::int64_t redone_steps() const;

  const RankContext& rank() const { return *rank_; }
  BatchLoader& loader() { return loader_; }
  const BatchLoader& loader() const { return loader_; }
  PartWorkers& workers() { return *workers_; }
  const PartWorkers& workers() const { return *workers_; }
  PartAssignment& assignment() { return *assignment_; }
  FiniteCheck& finite_check() { return *finite_check_; }

 private:
  struct LocalBlock;

  OptimizerParts optimizer_parts() const;
  void update(const StepRequest& request, StepClock& clock);
  // Of the gradients after the exchange. Collective.
  std::uint64_t gradients_digest();
  // The sum over all ranks of the digests of what they own.
  std::uint64_t sum_of_owned(const std::vector<DigestedTensor>& pieces);
  GradientTotal& total();
  void update_statistics();
  std::vector<LocalBlock> local_blocks() const;

  Backend& backend_;
  std::unique_ptr<RankStatus> own_status_;  // without one of the caller's
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<RankContext> rank_;
  std::uint64_t seed_;
  std::unique_ptr<DeviceTimeline> timeline_;
  ParameterArena arena_;
  NetworkWeights weights_;
  std::unique_ptr<PartAssignment> assignment_;
  BatchLoader loader_;
  std::unique_ptr<PartWorkers> workers_;
  std::unique_ptr<GradientTotal> float_total_;
  std::unique_ptr<ExactSum> exact_;  // null: gradients are added as they are
  std::unique_ptr<FiniteCheck> finite_check_;
  std::unique_ptr<Ownership> ownership_;
  std::unique_ptr<GradientExchange> exchange_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace tutti
