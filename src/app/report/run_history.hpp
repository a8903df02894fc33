#pragma once
// What a run's folder tells of it, but for the checkpoints' contents: metrics.jsonl (format: train/metrics_log.hpp),
// config.toml, exit.json and the lock. All of it comes from outside, and may lack anything.

#include "tutti/watch/time_report.hpp"

#include "../run_config.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

using Facts = std::vector<std::pair<std::string, std::string>>;  // names and values as people read them

struct EpochRecord {
  std::int64_t epoch = 0;
  std::optional<double> train_loss, train_accuracy, test_loss, test_accuracy, seconds, images_per_second, lr;
  std::string digest;
};

// Means over the steps since the last such record.
struct StretchRecord {
  std::optional<double> train_loss, train_accuracy, lr;
};

struct TimeRecord {
  std::int64_t epoch = 0;
  TimeShares mean;                  // over the ranks
  std::vector<TimeShares> ranks{};  // empty where they were too many
  std::optional<LateRank> latest{};
  std::string cause{};  // of the latest rank's being late, as it is written
};

struct CheckpointRecord {
  std::string file;
  std::optional<double> bytes, seconds, stall_seconds;
  std::string failure;
};

// The start, or a resume.
struct RunStart {
  std::int64_t step = 0;  // done already
  Facts facts{};

  std::string fact(const std::string& name) const;  // empty where there is none
};

struct RunEvent {
  std::int64_t step = 0;
  std::string what;
  std::string details;
  bool is_bad = false;
  friend bool operator==(const RunEvent&, const RunEvent&) = default;
};

struct RunHistory {
  std::string folder;
  std::string date;                              // of the last record
  std::vector<RunStart> starts{};                // in order
  std::map<std::int64_t, EpochRecord> epochs{};  // these four by steps done, of each the last record
  std::map<std::int64_t, StretchRecord> stretches{};
  std::map<std::int64_t, TimeRecord> times{};
  std::map<std::int64_t, CheckpointRecord> checkpoints{};
  std::vector<RunEvent> events{};  // besides starts and checkpoints, in order
  std::string options_text{};      // config.toml; empty where there is none
  std::optional<RunConfig> options{};
  std::optional<Facts> end{};  // exit.json
  bool is_under_way = false;
  int damaged_lines = 0;

  std::int64_t last_step() const;
  // Epochs done after so many steps, or these steps where no epoch has ended.
  double epochs_at(std::int64_t step) const;
  // Of the last start; empty where there is none.
  std::string fact(const std::string& name) const;
  // Of exit.json; likewise.
  std::string end_fact(const std::string& name) const;
};

// Throws io and input errors that name the file and the remedy when there is no record.
RunHistory read_run_history(const std::string& folder);

}  // namespace tutti
