#pragma once
// Where two runs, A and B, diverge: by the records of their metrics.jsonl, and by their checkpoints. Times and paths
// never count as a difference. Options do not either, but are reported.

#include <cstdint>
#include <map>
#include <string>

namespace tutti {

struct Comparison {
  bool compared = false;  // they have something in common
  bool differ = false;
  std::string text;  // whole lines for people
};

// The fields of one record by name, as JSON writes them.
using Figures = std::map<std::string, std::string>;

// The last record of each event and step, as a resumed run may have written it again.
struct MetricsRecords {
  std::map<std::int64_t, Figures> digests;
  std::map<std::int64_t, Figures> epochs;
  Figures run;            // the last run record
  int damaged_lines = 0;  // skipped
};

// Throws an io error for a file that cannot be read, an input error for one without any record.
MetricsRecords read_metrics(const std::string& path);
// Names the first step that differs, and in what. Epochs count as well as digests.
Comparison compare_metrics(const MetricsRecords& a, const MetricsRecords& b);

// Names the first tensor and the first element that differ. Throws checkpoint errors as load_checkpoint does.
Comparison compare_checkpoints(const std::string& a, const std::string& b);

// A difference as a line: "name  A's | B's".
std::string difference_line(const std::string& name, const std::string& of_a, const std::string& of_b);

}  // namespace tutti
