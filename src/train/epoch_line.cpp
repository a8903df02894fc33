#include "tutti/train/epoch_line.hpp"

#include <fmt/format.h>

namespace tutti {

std::string epoch_line(const EpochReport& report) {
  const std::size_t width = fmt::formatted_size("{}", report.epochs);
  const std::string test_accuracy = report.test ? fmt::format("{:.4f}", report.test->accuracy()) : "-";
  return fmt::format(
      "epoch {:>{}}/{}, loss {:.4f}, train acc {:.4f}, test acc {}, time {:.1f} sec, {:.0f} images/s, lr {:.6g}",
      report.epoch, width, report.epochs, report.train.mean_loss(), report.train.accuracy(), test_accuracy,
      report.seconds, report.images_per_second(), report.learning_rate);
}

}  // namespace tutti
