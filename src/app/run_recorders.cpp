#include "run_recorders.hpp"

#include "tutti/storage/line_file.hpp"
#include "tutti/train/metrics_log.hpp"

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
  return recorders;
}

}  // namespace tutti
