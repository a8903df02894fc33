#include "tutti/train/metrics_log.hpp"

#include "tutti/base/digest.hpp"

#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

MetricsLog::MetricsLog(const std::string& path) : file_(path) {}

void MetricsLog::write_line(const std::string& json) { file_.append(json); }

void MetricsLog::write(const EpochReport& report) {
  Json record{{"event", "epoch"},
              {"epoch", report.epoch},
              {"step", report.step},
              {"train_loss", report.train.mean_loss()},
              {"train_acc", report.train.accuracy()},
              {"test_loss", nullptr},
              {"test_acc", nullptr},
              {"seconds", report.seconds},
              {"images_per_second", report.images_per_second()},
              {"lr", report.learning_rate},
              {"digest", digest_text(report.weights_digest)}};
  if (report.test) {
    record["test_loss"] = report.test->mean_loss();
    record["test_acc"] = report.test->accuracy();
  }
  write_line(record.dump());
}

void MetricsLog::write(const StretchReport& report) {
  write_line(Json{{"event", "step"},
                  {"step", report.step},
                  {"train_loss", report.train.mean_loss()},
                  {"train_acc", report.train.accuracy()},
                  {"lr", report.learning_rate}}
                 .dump());
}

void MetricsLog::write(const DigestReport& report) {
  Json record{{"event", "digest"},
              {"step", report.step},
              {"weights", digest_text(report.weights)},
              {"gradients", digest_text(report.gradients)},
              {"optimizer", digest_text(report.optimizer)}};
  if (report.statistics) record["statistics"] = digest_text(*report.statistics);
  write_line(record.dump());
}

void MetricsLog::write(const SkippedReport& report) {
  write_line(
      Json{{"event", "skipped"}, {"step", report.step}, {"rank", report.rank}, {"tensor", report.tensor}}.dump());
}

}  // namespace tutti
