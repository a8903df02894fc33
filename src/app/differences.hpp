#pragma once
// Finds where two runs, A and B, diverge, from the records of their metrics.jsonl and from their checkpoints. Times and
// paths never count as a difference. Options do not either, but are reported.

#include <cstdint>
#include <map>
#include <string>

namespace tutti {

struct Comparison {
  bool compared = false;  // they have a step in common
  bool differ = false;
  std::string text;  // whole lines, for users
};

// The fields of one record by name, as JSON writes them.
using Figures = std::map<std::string, std::string>;

// The last record of each event and step, since a resumed run may have written it again.
struct MetricsRecords {
  std::map<std::int64_t, Figures> digests;
  std::map<std::int64_t, Figures> epochs;
  Figures run;            // the last run record
  int damaged_lines = 0;  // skipped
};

// Throws an io error if the file cannot be read, an input error if it has no record.
MetricsRecords read_metrics(const std::string& path);
// Names the first step that differs, and the fields that differ. Compares the records of epochs and of digests.
Comparison compare_metrics(const MetricsRecords& a, const MetricsRecords& b);

// Names the first tensor and the first element that differ. Throws checkpoint errors as load_checkpoint does.
Comparison compare_checkpoints(const std::string& a, const std::string& b);

// A line "name  value of A | value of B".
std::string values_line(const std::string& name, const std::string& a, const std::string& b);
// The same; empty if they are equal.
std::string difference(const std::string& name, const std::string& a, const std::string& b);

}  // namespace tutti
