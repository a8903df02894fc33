#include "differences.hpp"
#include "metrics_lines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// The first of them to differ says most: what a step computes comes before what follows from it.
constexpr std::array<std::string_view, 4> kOfStep{"gradients", "weights", "optimizer", "statistics"};
constexpr std::array<std::string_view, 6> kOfEpoch{"digest", "train_loss", "train_acc", "test_loss", "test_acc", "lr"};
// What options do not tell, and may have changed.
constexpr std::array<const char*, 6> kOfRun{"ranks",     "device",     "communicator",
                                            "libraries", "parameters", "data_digest"};

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

// One step that both have, and what it differs in.
struct Compared {
  std::int64_t step = 0;
  std::string differences;
};

bool has_no_test(const Figures& figures) {
  const auto accuracy = figures.find("test_acc");
  return accuracy == figures.end() || accuracy->second == "null";
}

// What only one of them has, as the test figures of a run that evaluates, is nothing to compare; a loss that is no
// number is.
template <class Names>
void compare(const std::map<std::int64_t, Figures>& a, const std::map<std::int64_t, Figures>& b, const Names& names,
             std::vector<Compared>& steps) {
  for (const auto& [step, of_a] : a) {
    const auto found = b.find(step);
    if (found == b.end()) continue;
    steps.push_back({.step = step, .differences = {}});
    for (const std::string_view name : names) {
      const auto mine = of_a.find(std::string(name));
      const auto theirs = found->second.find(std::string(name));
      if (mine == of_a.end() || theirs == found->second.end()) continue;
      const bool may_lack = name.starts_with("test_") && (has_no_test(of_a) || has_no_test(found->second));
      if (mine->second == theirs->second || may_lack) continue;
      steps.back().differences +=
          beside(std::string(name == "digest" ? "weights" : name), mine->second, theirs->second);
    }
  }
}

std::string facts_that_differ(const Figures& a, const Figures& b) {
  std::string text;
  for (const std::string name : kOfRun) {
    const auto mine = a.find(name);
    const auto theirs = b.find(name);
    if (mine == a.end() || theirs == b.end() || mine->second == theirs->second) continue;
    text += beside(name, mine->second, theirs->second);
  }
  return text;
}

std::string extent(const std::map<std::int64_t, Figures>& steps) {
  return steps.empty() ? "none" : fmt::format("{} to {}", steps.begin()->first, steps.rbegin()->first);
}

}  // namespace

std::string beside(const std::string& name, const std::string& of_a, const std::string& of_b) {
  return fmt::format("  {:<12}  {} | {}\n", name, of_a, of_b);
}

MetricsRecords read_metrics(const std::string& path) {
  const MetricsLines lines = read_metrics_lines(path);
  MetricsRecords records;
  records.damaged_lines = lines.damaged;
  for (const Json& record : lines.records) keep(records, record);
  return records;
}

Comparison compare_metrics(const MetricsRecords& a, const MetricsRecords& b) {
  std::vector<Compared> steps;
  compare(a.digests, b.digests, kOfStep, steps);
  compare(a.epochs, b.epochs, kOfEpoch, steps);
  std::ranges::stable_sort(steps, {}, &Compared::step);
  Comparison finding;
  for (const auto& [name, records] : {std::pair("A", &a), std::pair("B", &b)}) {
    if (records->damaged_lines > 0) {
      finding.text += fmt::format("{} has {} damaged lines, which were passed over\n", name, records->damaged_lines);
    }
  }
  finding.text += facts_that_differ(a.run, b.run);
  if (steps.empty()) {
    finding.text +=
        fmt::format("no step has a record in both; digests of steps:\n{}epochs that end at steps:\n{}",
                    beside("", extent(a.digests), extent(b.digests)), beside("", extent(a.epochs), extent(b.epochs)));
    return finding;
  }
  finding.compared = true;
  finding.text +=
      fmt::format("{} records compared, of steps {} to {}\n", steps.size(), steps.front().step, steps.back().step);
  const auto parted = std::ranges::find_if(steps, [](const Compared& step) { return !step.differences.empty(); });
  finding.differ = parted != steps.end();
  if (finding.differ)
    finding.text += fmt::format("step {} is the first to differ:\n{}", parted->step, parted->differences);
  return finding;
}

}  // namespace tutti
