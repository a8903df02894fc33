#pragma once
// One rank's copy of the network during training, and the order of a step: compute, exchange, checks, update. The
// trainer adds epochs, reports and checkpoints.

#include "tutti/train/replica_state.hpp"
#include "tutti/train/run_observer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tutti {

class FiniteCheck;
class NormSums;
class PartAudit;
class PartBalancer;
class PartWorkers;
class PhaseTimeline;
class ReplicaVerifier;
class StepTimer;

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
  StepTimes* times = nullptr;  // receives the times; the step then waits after each phase; borrowed
};

struct StepResult {
  double weight = 0;                                // the sum of the class weights of all labels; 0: there are none
  double own_weight = 0;                            // that of this rank's parts
  std::optional<std::uint64_t> gradients_digest{};  // if it was requested and the step was not skipped
  std::optional<SkippedReport> skipped{};
  std::optional<WrongPartReport> wrong_part{};  // the gradients and the exchange's state are then lost
  std::int64_t repetitions = 0;                 // on a coarser grid (exact)
};

// What the memory of a Replica depends on.
struct ReplicaShape {
  const Network& network;
  const TrainerOptions& options;
  std::size_t bytes_per_value = sizeof(float);  // of activations
  int rank = 0;
  int ranks = 1;
  std::int64_t test_samples = 0;

  // Of the largest part of a step.
  std::int64_t samples_per_part() const { return (options.batch_size + options.num_parts - 1) / options.num_parts; }
};

// In bytes, by shapes alone: within 25 % of what will be allocated.
struct ReplicaEstimate {
  std::int64_t memory = 0;       // as Replica::memory_bytes()
  std::int64_t activations = 0;  // included in it
  std::int64_t batches = 0;      // that are prepared, in the host's memory
};
ReplicaEstimate estimate_replica(const ReplicaShape& shape);

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

  ReplicaState& state() { return *state_; }
  const ReplicaState& state() const { return *state_; }
  const RankContext& context() const { return *context_; }
  BatchLoader& loader() { return loader_; }
  const BatchLoader& loader() const { return loader_; }
  PartWorkers& workers() { return *workers_; }
  const PartWorkers& workers() const { return *workers_; }
  PartBalancer& balancer() { return *balancer_; }
  ReplicaVerifier* verifier() { return verifier_.get(); }  // null: replicas are not verified
  // Of the device: the state and the activations.
  std::size_t memory_bytes() const;

 private:
  // Once; a step may be repeated. Collective.
  StepOutcome compute_and_exchange(PartsOfStep parts, StepTimer& clock, StepResult& result);

  Backend& backend_;
  std::unique_ptr<RankStatus> own_status_;  // if the caller has none
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<RankContext> context_;
  std::uint64_t seed_;
  std::unique_ptr<PhaseTimeline> timeline_;
  std::unique_ptr<ReplicaState> state_;
  std::unique_ptr<PartBalancer> balancer_;
  BatchLoader loader_;
  std::unique_ptr<NormSums> norm_sums_;  // null: batch norm is over each part
  std::unique_ptr<PartWorkers> workers_;
  std::unique_ptr<PartAudit> audit_;  // null: no parts are audited
  std::unique_ptr<FiniteCheck> finite_check_;
  std::unique_ptr<ReplicaVerifier> verifier_;
  bool may_check_in_update_;
};

}  // namespace tutti
