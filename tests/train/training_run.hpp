#pragma once
// One rank's run on small data, and an observer that records its reports.

#include "tutti/data/open_data.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/train/evaluation.hpp"
#include "tutti/train/trainer.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

inline OwnedData open_small(const std::string& name) { return open_data({.train = name}); }

// A stem and two residual blocks with batch norm, for images of 8 x 8 or more.
inline NetworkSpec small_resnet() {
  return parse_model(R"(
name = "small-resnet"
init = "kaiming"
layer = [
  {name = "stem.conv", type = "conv2d", channels = 8, kernel = 3, padding = 1},
  {name = "stem.norm", type = "batch-norm", relu = true},
  {name = "block1.conv", type = "conv2d", channels = 8, kernel = 3, padding = 1},
  {name = "block1.norm", type = "batch-norm", add = true, relu = true, residual = "stem.norm"},
  {name = "block2.shortcut", type = "conv2d", channels = 16, kernel = 1, stride = 2},
  {name = "block2.conv", type = "conv2d", channels = 16, kernel = 3, stride = 2, padding = 1, input = "block1.norm"},
  {name = "block2.norm", type = "batch-norm", add = true, relu = true, residual = "block2.shortcut"},
  {name = "pool", type = "global-average-pool"},
  {name = "head", type = "linear", units = "classes"},
]
)",
                     "small_resnet");
}

struct RunData {
  std::string name = "synthetic:100x1x8x8:3";
  NetworkSpec model = built_in_model("mlp");
  std::vector<std::string> frozen{};  // as of Network
};

class TrainingRun {
 public:
  explicit TrainingRun(const TrainerOptions& options, const RunData& data = {})
      : backend_(make_cpu_backend()),
        communicator_(make_solo_communicator()),
        data_(open_small(data.name)),
        network_(data.model, data_.pair.train->info().image, data_.pair.train->info().classes, data.frozen),
        trainer({.backend = *backend_,
                 .communicator = *communicator_,
                 .network = network_,
                 .train = *data_.pair.train,
                 .test = data_.pair.test.get()},
                options, {.configuration = "c", .command_line = "trainer", .model = "m", .versions = "v"}),
        recipe_(options.recipe) {}

  LossSums evaluate() { return evaluate(trainer.snapshot()); }
  LossSums evaluate(const TrainState& state) {
    return tutti::evaluate({.backend = *backend_,
                            .communicator = *communicator_,
                            .network = network_,
                            .data = *data_.pair.test,
                            .recipe = recipe_},
                           state);
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Communicator> communicator_;
  OwnedData data_;
  Network network_;

 public:
  Trainer trainer;

 private:
  ImageRecipe recipe_;
};

// The sums of the steps since the epoch began, over all ranks. Collective.
inline TrainSums epoch_sums(Trainer& trainer) { return trainer.snapshot(std::nullopt).progress.epoch_sums; }

class Recorder : public RunObserver {
 public:
  void on_step(const StepProgress& progress) override { steps.push_back(progress.step_in_epoch); }
  void on_interval(const IntervalReport& report) override { intervals.push_back(report); }
  void on_digest(const DigestReport& report) override { digests.push_back(report); }
  void on_epoch(const EpochReport& report) override { epochs.push_back(report); }
  void on_samples(const SampleReport& report) override { samples.push_back(report); }
  void on_checkpoint(TrainState state, double) override { checkpoints.push_back(std::move(state)); }

  std::vector<std::int64_t> steps;
  std::vector<IntervalReport> intervals;
  std::vector<DigestReport> digests;
  std::vector<EpochReport> epochs;
  std::vector<SampleReport> samples;
  std::vector<TrainState> checkpoints;
};

}  // namespace tutti
