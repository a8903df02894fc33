#include "differences.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/atomic_file.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// In the order in which a step computes them: the first one that differs is the cause of the others.
constexpr std::array kOfStep{"gradients", "weights", "optimizer", "statistics", "averages"};
constexpr std::array kOfEpoch{"digest", "train_loss", "train_acc", "test_loss", "test_acc", "lr"};
// Fields of the run record that options do not determine.
constexpr std::array kOfRun{"ranks", "device", "communicator", "libraries", "parameters", "data_digest"};

// Deeper nesting could overflow the stack when it is printed.
constexpr int kDeepest = 16;

bool is_record(const Json& json) {
  if (!json.is_object() || !json.contains("event") || !json["event"].is_string()) return false;
  if (json["event"] == "run") return true;
  constexpr std::int64_t kMaxSteps = std::int64_t{1} << 53;  // a double cannot tell larger ones apart
  if (!json.contains("step") || !json["step"].is_number_integer()) return false;
  const auto step = json["step"].get<std::int64_t>();
  return step >= 0 && step <= kMaxSteps;
}

// Parses one JSON value without levels below kDeepest; discarded if it is not JSON.
Json parse_shallow(const std::string& text) {
  return Json::parse(
      text, [](int depth, Json::parse_event_t, const Json&) { return depth <= kDeepest; }, false);
}

Figures figures_of(const Json& record) {
  Figures figures;
  for (const auto& [name, value] : record.items()) {
    figures[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return figures;
}

void keep(MetricsRecords& records, const Json& record) {
  if (record["event"] == "run") {
    records.run = figures_of(record);
    return;
  }
  const auto step = record["step"].get<std::int64_t>();
  if (record["event"] == "digest") records.digests[step] = figures_of(record);
  if (record["event"] == "epoch") records.epochs[step] = figures_of(record);
}

// A step that both runs have, and its differences.
struct ComparedStep {
  std::int64_t step = 0;
  std::string differences;
};

bool has_no_test(const Figures& figures) {
  const auto accuracy = figures.find("test_acc");
  return accuracy == figures.end() || accuracy->second == "null";
}

// A field that only one of them has, such as the test loss of a run that evaluates, is not compared. NaN losses are.
std::string differences(const Figures& a, const Figures& b, std::span<const char* const> names) {
  const bool may_lack = has_no_test(a) || has_no_test(b);
  std::string text;
  for (const std::string name : names) {
    const auto of_a = a.find(name);
    const auto of_b = b.find(name);
    if (of_a == a.end() || of_b == b.end() || (may_lack && name.starts_with("test_"))) continue;
    text += difference(name == "digest" ? "weights" : name, of_a->second, of_b->second);
  }
  return text;
}

void compare(const std::map<std::int64_t, Figures>& a, const std::map<std::int64_t, Figures>& b,
             std::span<const char* const> names, std::vector<ComparedStep>& steps) {
  for (const auto& [step, of_a] : a) {
    const auto of_b = b.find(step);
    if (of_b != b.end()) steps.push_back({step, differences(of_a, of_b->second, names)});
  }
}

std::string extent(const std::map<std::int64_t, Figures>& steps) {
  return steps.empty() ? "none" : fmt::format("{} to {}", steps.begin()->first, steps.rbegin()->first);
}

std::int64_t last_step(const MetricsRecords& records) {
  std::int64_t last = 0;
  for (const auto* steps : {&records.digests, &records.epochs}) {
    if (!steps->empty()) last = std::max(last, steps->rbegin()->first);
  }
  return last;
}

}  // namespace

std::string values_line(const std::string& name, const std::string& a, const std::string& b) {
  return fmt::format("  {:<12}  {} | {}\n", name, a, b);
}

std::string difference(const std::string& name, const std::string& a, const std::string& b) {
  return a == b ? "" : values_line(name, a, b);
}

MetricsRecords read_metrics(const std::string& path) {
  std::istringstream text(read_file_text(path));
  MetricsRecords records;
  bool has_any = false;
  for (std::string line; std::getline(text, line);) {
    if (line.empty()) continue;
    const Json record = parse_shallow(line);
    if (is_record(record)) {
      keep(records, record);
      has_any = true;
    } else {
      ++records.damaged_lines;
    }
  }
  if (has_any) return records;
  throw Error(ErrorSource::input, fmt::format("'{}' holds no records: give a run's folder, its metrics.jsonl or one "
                                              "of its checkpoints (.h5)",
                                              path));
}

Comparison compare_metrics(const MetricsRecords& a, const MetricsRecords& b) {
  std::vector<ComparedStep> steps;
  compare(a.digests, b.digests, kOfStep, steps);
  compare(a.epochs, b.epochs, kOfEpoch, steps);
  std::ranges::stable_sort(steps, {}, &ComparedStep::step);
  Comparison finding;
  for (const auto& [name, records] : {std::pair("A", &a), std::pair("B", &b)}) {
    if (records->damaged_lines > 0) {
      finding.text += fmt::format("{} has {} damaged lines, which were skipped\n", name, records->damaged_lines);
    }
  }
  finding.text += differences(a.run, b.run, kOfRun);
  if (steps.empty()) {
    finding.text += fmt::format("no step has a record in both; digests of steps:\n{}epochs that end at steps:\n{}",
                                values_line("", extent(a.digests), extent(b.digests)),
                                values_line("", extent(a.epochs), extent(b.epochs)));
    return finding;
  }
  finding.compared = true;
  finding.text +=
      fmt::format("{} records compared, of steps {} to {}\n", steps.size(), steps.front().step, steps.back().step);
  if (last_step(a) != last_step(b)) {
    finding.text += fmt::format("the last step with a record is {} in A and {} in B\n", last_step(a), last_step(b));
  }
  const auto first = std::ranges::find_if(steps, [](const ComparedStep& step) { return !step.differences.empty(); });
  finding.differ = first != steps.end();
  if (finding.differ)
    finding.text += fmt::format("step {} is the first to differ:\n{}", first->step, first->differences);
  return finding;
}

}  // namespace tutti
