#pragma once
// One training run: the order of a step, and the loop around it. Who the ranks are, which processor computes and where
// reports go is decided by the caller, who lends the parts.

#include "tutti/backend/backend.hpp"
#include "tutti/checkpoint/train_state.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/train/exchange.hpp"
#include "tutti/train/lr_schedule.hpp"
#include "tutti/train/optimizer.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/train/safeguards.hpp"
#include "tutti/train/step_times.hpp"
#include "tutti/watch/rank_status.hpp"
#include "tutti/watch/rehearsal.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// All borrowed; the pointers may be null.
struct TrainerParts {
  Backend& backend;
  Communicator& communicator;
  const Network& network;
  const Dataset& train;
  const Dataset* test = nullptr;
  RankStatus* rank_status = nullptr;
  std::vector<std::string> hosts{};  // by rank, for messages that name one; empty: not told
};

struct PartMapOptions {
  std::vector<int> parts_by_rank{};  // empty: even
  bool measured = false;             // starts so, then follows what each rank's parts take; keeps the bits of `exact`
};

// For TrainerOptions::schedule_epochs: the schedule ends where the launch does, --steps included. Runs begun before
// schedules had an end of their own go on so.
inline constexpr std::int64_t kScheduleOfLaunch = -1;

struct TrainerOptions {
  std::int64_t batch_size = 128;  // global
  int num_parts = 1;
  ExchangeOptions exchange{};
  PartMapOptions part_map{};  // which rank plays which parts
  int threads = 1;            // of each part
  int side_by_side = 1;       // so many parts of this rank at once, at most; never changes a bit
  LastBatch last_batch = LastBatch::keep;
  Shuffle shuffle = Shuffle::global;
  std::uint64_t seed = 0;
  Initializer initializer = Initializer::xavier;
  std::int64_t epochs = 1;
  std::int64_t steps = 0;            // ends the run even inside an epoch; 0: epochs alone end it
  std::int64_t schedule_epochs = 0;  // over which the learning rate's schedule stretches; 0: epochs
  OptimizerOptions optimizer{};
  double label_smoothing = 0;
  LrPlan learning_rate{};
  std::size_t bucket_bytes = std::size_t{4} << 20;
  int steps_ahead = 1;                 // batches prepared ahead, and steps queued on the processor ahead of the one
                                       // it works on; never changes a bit
  int readers = 1;                     // threads that prepare them
  ImageRecipe recipe{};                // of training images; test images are only fitted to its size
  std::int64_t test_every_epochs = 1;  // and after the last; 0: never
  std::int64_t log_every_steps = 0;
  std::int64_t digest_every_steps = 0;
  std::int64_t checkpoint_every_steps = 0;
  std::int64_t checkpoint_every_epochs = 0;
  bool checkpoint_at_end = false;
  bool checkpoint_at_best = false;  // after every evaluation that is better than all before it
  // Of each checkpoint's arrays, those that this rank hands to on_checkpoint; none: nothing is copied here.
  std::optional<FileShare> file_share = FileShare{};
  Safeguards safeguards{};
  bool reports_samples = false;
  // For rehearsals: called in the thread that played a part, with the seconds that it took; as if it took as much more.
  std::function<void(double seconds)> after_part{};
};

// What goes into checkpoints besides the trainer's own state.
struct RunFacts {
  std::string configuration;
  std::string command_line{};
  std::string model;
  std::string versions;
  std::string data{};             // as TrainState has it
  std::uint64_t data_digest = 0;  // of the training set
};

class Trainer {
 public:
  // Initialises the weights and plans every shape that can occur. To be called, like all else here, in the thread
  // that trains. Throws usage errors for options that do not fit each other or the data.
  Trainer(const TrainerParts& parts, const TrainerOptions& options, RunFacts facts);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Goes on from there. Throws a checkpoint error that names the first tensor, or item of the progress, that does not
  // fit. The planned end may be another than it was.
  void restore(const TrainState& state);
  // Starts from these weights and statistics instead of drawn ones, before the first step. Those of the last layer with
  // any may be missing or of another shape: they stay as drawn, and their names are returned. Throws an input error
  // that names any other tensor that does not fit.
  std::vector<std::string> start_from(const TrainState& state);
  // Everything that restore() needs, the same on every rank; of its arrays, only those of `share`, and without one
  // none. Throws on all ranks when the loss or a weight is no longer finite, so that such a state is never kept.
  // Collective.
  TrainState snapshot(std::optional<FileShare> share = FileShare{});

  // One step of training. Collective. Asynchronous, as far as steps_ahead allows.
  void step();
  // The same, with work waited for between its phases and layers. Collective.
  StepTimes timed_step();
  // A step of the exchange alone, for measurements: input, compute and update are slept through, as long as `pace`
  // says, which has the stretches of a timed_step() of the same network, and the update of all its weights. No step of
  // the run: it counts nothing, and leaves gradients and weights unspecified. Collective.
  StepTimes paced_step(const StepTimes& pace);
  // Buckets of the exchange: where each ends, in elements of the block of gradients, ascending.
  std::vector<std::int64_t> bucket_ends() const;
  // The last step's gradients, of what this rank updates: with ring and exact, of everything.
  Tensor gradients() const;
  // As a step whose only part of this rank had these gradients, f32, a whole block elsewhere: exchange and update
  // alone, for measurements. No step of the run: it counts nothing. Collective. Asynchronous likewise.
  void step_with(const Tensor& gradients);
  // Returns when all steps so far are done.
  void settle();
  // Steps, evaluates and reports until the planned end, or until the observer wants it to stop. Collective.
  RunEnd run(RunObserver& observer);
  // Over the test set. Collective.
  LossSums evaluate();

  std::int64_t steps_done() const;
  std::int64_t planned_steps() const;
  // Of the step to come.
  double learning_rate() const;
  // Of those done, the ones that have changed nothing.
  std::int64_t skipped_steps() const;
  // Of the step to come.
  const PartPlan& part_plan() const;
  // After whole epochs: samples dealt so far but given to no step (rollover and discard).
  std::int64_t samples_left_over() const;
  std::uint64_t weights_digest();
  // Parts of this rank that are played at once.
  int players() const;
  // Device memory held for activations, weights, gradients and optimizer state.
  std::size_t memory_bytes() const;
  // Of it, the block of gradients and what they are added up in; and the optimizer's state.
  std::size_t exchange_bytes() const;
  std::size_t optimizer_bytes() const;
  // Steps that the exact exchange has played again on a wider grid.
  std::int64_t replayed_steps() const;
  // For rehearsals: tensors of which this rank has a copy of its own, and a bit of it, as PhaseListener::on_begin() may
  // turn it. Waits.
  std::vector<FlipTarget> held_tensors() const;
  void flip(const BitFlip& flip);
  // The sums of the steps since the epoch began, over all ranks. Collective.
  LossSums epoch_sums();

 private:
  class Run;
  std::unique_ptr<Run> run_;
};

}  // namespace tutti
