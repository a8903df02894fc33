#include "run_recorders.hpp"

#include "tutti/storage/line_file.hpp"
#include "tutti/train/metrics_log.hpp"

#include "mlperf_log.hpp"
#include "preflight/out_folder.hpp"
#include "tensorboard_log.hpp"

#include <nlohmann/json.hpp>

#include <string>

namespace tutti {
namespace {

// --sample-log: {"step":k,"epoch":e,"parts":[[samples]..]}, a line a step.
class SampleLog : public RunRecorder {
 public:
  SampleLog(const std::string& path, EarlierLines earlier) : file_(path, earlier) {}

  void on_samples(const SampleReport& report) override {
    const nlohmann::ordered_json json{{"step", report.step}, {"epoch", report.epoch}, {"parts", report.parts}};
    file_.append(json.dump());
  }

 private:
  LineFile file_;
};

MlperfFacts mlperf_facts(const Assembly& assembly) {
  const RunConfig& config = assembly.config;
  return {.seed = config.seed,
          .batch_size = config.batch_size,
          .train_samples = assembly.data.train->info().samples,
          .test_samples = assembly.data.test ? assembly.data.test->info().samples : 0,
          .optimizer = config.optimizer,
          .learning_rate = config.lr,
          .warmup_epochs = config.warmup_epochs,
          .momentum = config.momentum,
          .weight_decay = config.weight_decay};
}

}  // namespace

std::vector<std::unique_ptr<RunRecorder>> make_recorders(const Assembly& assembly, const World& world,
                                                         const OwnedFolder& folder, bool resumes) {
  const RunConfig& config = assembly.config;
  std::vector<std::unique_ptr<RunRecorder>> recorders;
  if (world.rank() != 0) return recorders;
  if (!config.out.empty()) {
    recorders.push_back(
        std::make_unique<MetricsLog>(config.out + "/metrics.jsonl", [folder] { return folder.loss().empty(); }));
  }
  if (!config.sample_log.empty()) {
    const EarlierLines earlier = resumes ? EarlierLines::kept : EarlierLines::dropped;
    recorders.push_back(std::make_unique<SampleLog>(config.sample_log, earlier));
  }
  if (!config.mlperf_log.empty()) {
    recorders.push_back(std::make_unique<MlperfLog>(config.mlperf_log, mlperf_facts(assembly)));
  }
  if (!config.tensorboard.empty()) {
    make_folder("--tensorboard " + config.tensorboard, config.tensorboard);
    recorders.push_back(std::make_unique<TensorboardLog>(config.tensorboard, world.host()));
  }
  return recorders;
}

}  // namespace tutti
