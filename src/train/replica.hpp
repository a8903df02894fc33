#pragma once
// One rank's copy of the network in training: everything that a step needs, and the order of a step. Epochs, reports
// and checkpoints are the trainer's.

#include "tutti/train/trainer.hpp"

#include "device_timeline.hpp"
#include "exact_sum.hpp"
#include "finite_check.hpp"
#include "gradient_sync.hpp"
#include "held_state.hpp"
#include "ownership.hpp"
#include "part_dealer.hpp"
#include "part_team.hpp"
#include "step_clock.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

class ReplicaProof;
struct ReplicatedTensor;

struct StepRequest {
  std::int64_t step = 0;     // of the run, counted from 0
  std::int64_t updates = 0;  // so many steps before it have changed the weights
  double learning_rate = 0;
  bool digests_gradients = false;
  ReplicaProof* proof = nullptr;  // notes the weights before their update; borrowed
  StepTimes* times = nullptr;     // wanted there, borrowed: phases and layers are then waited for
};

class Replica {
 public:
  // All borrowed.
  Replica(const TrainerParts& parts, const TrainerOptions& options, RankStatus& rank_status);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  Stream& stream() { return *stream_; }
  BatchLoader& loader() { return loader_; }
  const BatchLoader& loader() const { return loader_; }
  PartTeam& team() { return team_; }
  PartDealer& dealer() { return dealer_; }
  DeviceTimeline& timeline() { return timeline_; }
  FiniteCheck& finite_check() { return finite_check_; }

  // The loader's next step. Returns the digest of the gradients when it was asked for and the step is not left out.
  // Collective. Asynchronous.
  std::optional<std::uint64_t> step(const StepRequest& request);
  // One whose input, compute and update are slept through. Collective.
  StepTimes paced_step(const StepTimes& pace, std::int64_t step);
  const std::vector<std::int64_t>& bucket_ends() const { return ownership_.bucket_ends(); }
  // Exchange and update alone. Collective. Asynchronous.
  void step_with(const Tensor& gradients, const StepRequest& request);
  // After a step: parts may be dealt anew. Collective.
  void deal();

  // Weights, statistics, optimizer state and what the exchange knows, for a checkpoint: of them, those that the share
  // takes. Collective. Waits.
  void add_to(TrainState& state, const std::optional<FileShare>& share);
  // And from one, which every rank has. Waits for nobody else.
  void restore(const TrainState& state);
  // Weights and statistics alone, as Trainer::start_from() says.
  std::vector<std::string> start_from(const TrainState& state);

  // What is equal on all ranks between two steps: weights, statistics, and where every rank updates everything, the
  // optimizer's state; and what the exchange goes by.
  std::vector<ReplicatedTensor> replicated() const;
  // Whether weights and statistics are one rank's before they are everyone's.
  bool passes_on_weights() const { return ownership_.owners() != Owners::everyone; }

  // For rehearsals.
  std::vector<FlipTarget> held_tensors() const { return tensors_of(held_blocks()); }
  void flip(const BitFlip& flip);

  Tensor gradients() const { return arena_.gradients(); }
  std::uint64_t weights_digest() { return digest_of(backend_, *stream_, arena_.weights(), arena_.layout().trained()); }
  std::optional<std::uint64_t> statistics_digest();  // of a network that has any
  std::uint64_t optimizer_digest();                  // Collective.

  std::size_t memory_bytes() const {
    return arena_.layout().block_bytes() + exchange_bytes() + optimizer_bytes() + team_.memory_bytes();
  }
  std::size_t exchange_bytes() const { return arena_.layout().block_bytes() + (exact_ ? exact_->bytes() : 0); }
  std::size_t optimizer_bytes() const;
  std::int64_t replayed_steps() const { return exact_ ? exact_->replayed_steps() : 0; }

 private:
  OptimizerParts optimizer_parts() { return {backend_, communicator_, arena_.layout(), ownership_}; }
  // Of the gradients after the exchange. Collective.
  std::uint64_t gradients_digest();
  // Of what ranks digested of what they own.
  std::uint64_t sum_of_owned(const std::vector<DigestedTensor>& pieces);
  GradientTotal& total() { return exact_ ? static_cast<GradientTotal&>(*exact_) : float_total_; }
  void ready(std::int64_t final_elements) {
    if (sync_.is_due(final_elements)) finite_check_.look(*stream_, final_elements);
    sync_.ready(final_elements, *stream_);
  }
  // What is to become of a step: gradients stand, or are to be made once more, or it changes nothing.
  enum class Verdict { stands, again, left_out };
  Verdict exchanged(std::int64_t step, std::span<const Batch> batches = {});
  void update(const StepRequest& request, StepClock& clock);
  void update_statistics();
  // Of the block, what this rank updates.
  double owned_share() const;
  std::vector<HeldBlock> held_blocks() const;
  // Those who own weights pass them on.
  void pass_on_weights();

  Backend& backend_;
  Communicator& communicator_;
  RankStatus& rank_status_;
  std::uint64_t seed_;
  std::unique_ptr<Stream> stream_;
  DeviceTimeline timeline_;
  ParameterArena arena_;
  NetworkWeights weights_;
  PartDealer dealer_;
  BatchLoader loader_;
  PartTeam team_;
  FloatTotal float_total_;
  std::unique_ptr<ExactSum> exact_;  // null: gradients are added as they are
  FiniteCheck finite_check_;
  Ownership ownership_;
  GradientSync sync_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace tutti
