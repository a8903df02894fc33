#include "diff_command.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/utf8.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/storage/whole_file.hpp"

#include "checkpoint_choice.hpp"
#include "differences.hpp"
#include "option_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace tutti {
namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
  std::error_code unknown;
  return fs::exists(path, unknown);
}

bool is_checkpoint(const std::string& path) { return path.ends_with(".h5"); }

std::string metrics_path(const std::string& path) { return is_folder(path) ? path + "/metrics.jsonl" : path; }

CheckpointStore store_of(const std::string& folder) { return CheckpointStore(folder + "/checkpoints"); }

// By the checkpoints of the steps that both folders hold, up to the first that differs.
Comparison compare_stores(const std::string& a, const std::string& b) {
  const CheckpointStore store_a = store_of(a);
  const CheckpointStore store_b = store_of(b);
  const auto steps_a = store_a.steps();
  const auto steps_b = store_b.steps();
  std::vector<std::int64_t> common;
  std::ranges::set_intersection(steps_a, steps_b, std::back_inserter(common));
  Comparison all{.compared = !common.empty(),
                 .text = fmt::format("checkpoints of both: steps {}\n", fmt::join(common, ", "))};
  if (common.empty()) all.text = "no step has a checkpoint in both\n";
  for (const std::int64_t step : common) {
    const Comparison finding = compare_checkpoints(store_a.path_of(step), store_b.path_of(step));
    if (!finding.differ) continue;
    all.differ = true;
    all.text += fmt::format("the checkpoint of step {} is the first to differ:\n{}", step, finding.text);
    break;
  }
  return all;
}

// By the resolved options that lie beside the metrics.
Comparison compare_options(const std::string& a, const std::string& b) {
  RunConfig config_a;
  RunConfig config_b;
  for (const auto& [run, config] : {std::pair(&a, &config_a), std::pair(&b, &config_b)}) {
    const std::string path = (fs::path(metrics_path(*run)).parent_path() / "config.toml").string();
    std::set<std::string> read;
    if (!is_file(path)) return {};
    const auto bytes = read_whole(path);
    read_config_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, *config, read);
  }
  return {.text = options_that_differ(config_a, config_b)};
}

void add(Comparison& all, const Comparison& more) {
  all.compared = all.compared || more.compared;
  all.differ = all.differ || more.differ;
  all.text += more.text;
}

// Else the two would only have nothing in common, whatever is done with the other one.
void refuse_no_run(const std::string& folder) {
  if (!is_folder(folder) || is_file(metrics_path(folder)) || !store_of(folder).steps().empty()) return;
  throw Error(ErrorSource::input, fmt::format("'{}' is no run: it holds neither metrics.jsonl nor checkpoints; give a "
                                              "folder that a training had as --out",
                                              folder));
}

Comparison compare_runs(const std::string& a, const std::string& b) {
  for (const std::string& folder : {a, b}) refuse_no_run(folder);
  const bool are_folders = is_folder(a) && is_folder(b);
  Comparison all = compare_options(a, b);
  if (!are_folders || (is_file(metrics_path(a)) && is_file(metrics_path(b)))) {
    const MetricsRecords records_a = read_metrics(metrics_path(a));
    const MetricsRecords records_b = read_metrics(metrics_path(b));
    add(all, compare_metrics(records_a, records_b));
    if (all.differ && !records_a.digests.empty() && !records_b.digests.empty()) return all;
  }
  if (are_folders) add(all, compare_stores(a, b));
  return all;
}

Comparison compare(const std::string& a, const std::string& b) {
  if (is_checkpoint(a) && is_checkpoint(b)) return compare_checkpoints(a, b);
  if (is_checkpoint(a) || is_checkpoint(b)) {
    throw Error(ErrorSource::input, fmt::format("'{}' is a checkpoint and '{}' is none: give a checkpoint of that run, "
                                                "as RUN@STEP",
                                                is_checkpoint(a) ? a : b, is_checkpoint(a) ? b : a));
  }
  return compare_runs(a, b);
}

}  // namespace

ExitStatus diff_command(World& world, const Invocation& invocation) {
  bool equal = true;
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    const std::string a = checkpoint_path(invocation.compared.a);
    const std::string b = checkpoint_path(invocation.compared.b);
    const Comparison finding = compare(a, b);
    fmt::print("A: {}\nB: {}\n{}", a, b, printable(finding.text, "\n"));
    if (!finding.compared) {
      throw Error(ErrorSource::input, fmt::format("'{}' and '{}' have no step in common: --digest-every or "
                                                  "--checkpoint-every would give them some",
                                                  a, b));
    }
    equal = !finding.differ;
    fmt::print("{}\n", equal ? "equal" : "different");
    std::fflush(stdout);
  });
  return world.agree(equal) ? ExitStatus::done : ExitStatus::answer_is_no;
}

}  // namespace tutti
