#pragma once
// The records of a metrics.jsonl as they stand there. What they mean is train/metrics_log.hpp's business.

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace tutti {

struct MetricsLines {
  std::vector<nlohmann::ordered_json> records;  // each has an "event" and, but for that of a run, a "step"
  int damaged = 0;                              // lines that are none, and were passed over
};

// Throws an io error when it cannot be read, and an input error when it holds no record.
MetricsLines read_metrics_lines(const std::string& path);

}  // namespace tutti
