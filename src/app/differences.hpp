#pragma once
// Where two runs, A and B, part: by the records of their metrics.jsonl, and by their checkpoints. Times and places
// never count as a difference, nor do options, which are told all the same.

#include "run_config.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace tutti {

// In words for people, whole lines.
struct Comparison {
  bool compared = false;  // they have something in common
  bool differ = false;
  std::string text;
};

// Of one record: its fields by name, as JSON writes them.
using Figures = std::map<std::string, std::string>;

// Of each event and step the last record, as a resume may have written it again.
struct MetricsRecords {
  std::map<std::int64_t, Figures> digests;
  std::map<std::int64_t, Figures> epochs;
  Figures run;            // the last run record
  int damaged_lines = 0;  // passed over
};

// Throws an io error for a file that cannot be read, an input error for one that holds no record at all.
MetricsRecords read_metrics(const std::string& path);
// Names the first step that differs, and in what. Epochs count as well as digests.
Comparison compare_metrics(const MetricsRecords& a, const MetricsRecords& b);

// Names the first tensor and the first element that differ. Throws checkpoint errors as load_checkpoint does.
Comparison compare_checkpoints(const std::string& a, const std::string& b);

// A line for each option that belongs to what is computed.
std::string options_that_differ(RunConfig a, RunConfig b);

// "name  A's | B's" of a difference.
std::string beside(const std::string& name, const std::string& of_a, const std::string& of_b);

}  // namespace tutti
