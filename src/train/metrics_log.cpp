#include "tutti/train/metrics_log.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

Error cannot_write(const std::string& path) {
  return Error(ErrorSource::save, fmt::format("cannot write {}: {}: check the folder, its permissions and free space",
                                              path, std::strerror(errno)));
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) throw cannot_write(path_);
}

MetricsLog::~MetricsLog() { ::close(descriptor_); }

void MetricsLog::write_line(const std::string& json) {
  const std::string line = json + "\n";
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw cannot_write(path_);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

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

}  // namespace tutti
