#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "checkpoint_choice.hpp"
#include "commands.hpp"
#include "differences.hpp"
#include "option_table.hpp"
#include "output.hpp"
#include "run_folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string bits_text(float value) {
  return fmt::format("{:.9g} (0x{:08x})", value, std::bit_cast<std::uint32_t>(value));
}

// Empty if they are bit-identical.
std::string tensor_difference(const NamedArray& a, const NamedArray& b) {
  if (a.shape != b.shape) return values_line("shape", a.shape.text(), b.shape.text());
  std::size_t first = 0;
  std::int64_t different = 0;
  double largest = 0;
  for (std::size_t i = a.values.size(); i-- > 0;) {
    if (std::bit_cast<std::uint32_t>(a.values[i]) == std::bit_cast<std::uint32_t>(b.values[i])) continue;
    largest = std::max(largest, std::abs(static_cast<double>(a.values[i]) - static_cast<double>(b.values[i])));
    first = i;
    ++different;
  }
  if (different == 0) return {};
  return values_line(index_text(a.shape, static_cast<std::int64_t>(first)), bits_text(a.values[first]),
                     bits_text(b.values[first])) +
         fmt::format("  {} of {} elements differ, by {:.3g} at most\n", different, a.values.size(), largest);
}

// The first tensor of a group that differs, and how many do; empty if none does.
std::string group_difference(const char* group, const std::vector<NamedArray>& a, const std::vector<NamedArray>& b) {
  std::map<std::string, std::pair<const NamedArray*, const NamedArray*>> tensors;
  for (const NamedArray& array : a) tensors[array.name].first = &array;
  for (const NamedArray& array : b) tensors[array.name].second = &array;
  int different = 0;
  std::string first;
  for (const auto& [name, pair] : tensors) {
    const bool both = pair.first != nullptr && pair.second != nullptr;
    const std::string text = both ? tensor_difference(*pair.first, *pair.second)
                                  : fmt::format("  only {} has it\n", pair.first != nullptr ? "A" : "B");
    if (text.empty()) continue;
    if (different++ == 0) first = fmt::format("first {}:\n{}", name, text);
  }
  if (different == 0) return {};
  return fmt::format("/{}: {} of {} tensors differ, {}", group, different, tensors.size(), first);
}

// Compares only the training itself; options and evaluations decide the other fields.
std::string progress_difference(const TrainProgress& a, const TrainProgress& b) {
  const auto text = [](const TrainProgress& progress) {
    return fmt::format("step {}, epoch {} with {} steps and {} samples of the next, {} carried over", progress.step,
                       progress.epoch, progress.step_in_epoch, progress.samples_in_epoch, progress.carried_over);
  };
  if (text(a) != text(b)) return values_line("progress", text(a), text(b));
  const auto sums_text = [](const LossSums& sums) {
    return fmt::format("{} correct of {}, loss sum {}", sums.correct, sums.samples, sums.loss());
  };
  return difference("last lr", fmt::format("{}", a.learning_rate), fmt::format("{}", b.learning_rate)) +
         (a.epoch_sums == b.epoch_sums ? ""
                                       : values_line("epoch so far", sums_text(a.epoch_sums), sums_text(b.epoch_sums)));
}

// A line for each option that affects the result and differs.
std::string options_that_differ(RunConfig a, RunConfig b) {
  const auto options_a = run_options(a);
  const auto options_b = run_options(b);
  std::string text;
  for (std::size_t i = 0; i < options_a.size(); ++i) {
    if (options_a[i].use != OptionUse::fixed) continue;
    text += difference("--" + options_a[i].name, value_text(options_a[i]), value_text(options_b[i]));
  }
  return text;
}

// Options, network, data and versions.
std::string facts_that_differ(const LoadedCheckpoint& loaded_a, const LoadedCheckpoint& loaded_b) {
  const TrainState& a = loaded_a.state;
  const TrainState& b = loaded_b.state;
  std::string text = options_that_differ(read_config_text(a.configuration, loaded_a.path),
                                         read_config_text(b.configuration, loaded_b.path));
  if (a.model != b.model) text += "  the networks differ\n";
  const auto best_text = [](const BestTest& best) {
    return fmt::format("{} of {} after step {}", best.correct, best.samples, best.step);
  };
  text += difference("best test", best_text(a.progress.best), best_text(b.progress.best));
  text += difference("data digest", digest_text(a.data_digest), digest_text(b.data_digest));
  return text + difference("versions", a.versions, b.versions);
}

bool is_checkpoint(const std::string& path) { return path.ends_with(".h5"); }

std::string metrics_path(const std::string& path) { return is_folder(path) ? path + "/metrics.jsonl" : path; }

CheckpointStore store_of(const std::string& folder) { return CheckpointStore(checkpoints_folder(folder)); }

// Compares the checkpoints of all steps that both folders have, up to the first that differs.
Comparison compare_stores(const std::string& a, const std::string& b) {
  const CheckpointStore store_a = store_of(a);
  const CheckpointStore store_b = store_of(b);
  const auto steps_a = store_a.steps();
  const auto steps_b = store_b.steps();
  std::vector<std::int64_t> common;
  std::ranges::set_intersection(steps_a, steps_b, std::back_inserter(common));
  Comparison all{.compared = !common.empty(),
                 .text = fmt::format("steps with a checkpoint in both: {}\n", fmt::join(common, ", "))};
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

// Compares the options in config.toml, which is in the folder of the metrics.
Comparison compare_options(const std::string& a, const std::string& b) {
  std::vector<RunConfig> configs;
  for (const std::string& run : {a, b}) {
    const fs::path folder = fs::path(metrics_path(run)).parent_path();
    const std::string path = options_file(folder.empty() ? "." : folder.string());
    if (!file_exists(path)) return {};
    configs.push_back(read_config_text(read_file_text(path), path));
  }
  return {.text = options_that_differ(configs[0], configs[1])};
}

void add(Comparison& all, const Comparison& more) {
  all.compared = all.compared || more.compared;
  all.differ = all.differ || more.differ;
  all.text += more.text;
}

void refuse_no_run(const std::string& folder) {
  if (!is_folder(folder) || file_exists(metrics_path(folder)) || !store_of(folder).steps().empty()) return;
  throw Error(ErrorSource::input, fmt::format("'{}' is not a run: it holds neither metrics.jsonl nor checkpoints; "
                                              "give the --out folder of a training",
                                              folder));
}

Comparison compare_runs(const std::string& a, const std::string& b) {
  for (const std::string& folder : {a, b}) refuse_no_run(folder);
  const bool are_folders = is_folder(a) && is_folder(b);
  Comparison all = compare_options(a, b);
  if (!are_folders || (file_exists(metrics_path(a)) && file_exists(metrics_path(b)))) {
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
    throw Error(ErrorSource::input, fmt::format("'{}' is a checkpoint and '{}' is not: give a checkpoint of that run, "
                                                "as RUN@STEP",
                                                is_checkpoint(a) ? a : b, is_checkpoint(a) ? b : a));
  }
  return compare_runs(a, b);
}

}  // namespace

Comparison compare_checkpoints(const std::string& a, const std::string& b) {
  const LoadedCheckpoint loaded_a = load_checkpoint(a);
  const LoadedCheckpoint loaded_b = load_checkpoint(b);
  const TrainState& of_a = loaded_a.state;
  const TrainState& of_b = loaded_b.state;
  std::string differences = progress_difference(of_a.progress, of_b.progress);
  for (const auto& [group, arrays] : kArrayGroups) differences += group_difference(group, of_a.*arrays, of_b.*arrays);
  return {
      .compared = true, .differ = !differences.empty(), .text = facts_that_differ(loaded_a, loaded_b) + differences};
}

ExitStatus diff_command(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  bool equal = true;
  on_rank_0(world, [&] {
    const std::string a = checkpoint_path(invocation.compared.a);
    const std::string b = checkpoint_path(invocation.compared.b);
    const Comparison finding = compare(a, b);
    fmt::print("A: {}\nB: {}\n{}", a, b, printable(finding.text, "\n"));
    if (!finding.compared) {
      throw Error(ErrorSource::input, fmt::format("'{}' and '{}' have no step in common: train with --digest-every "
                                                  "or --checkpoint-every",
                                                  a, b));
    }
    equal = !finding.differ;
    fmt::print("{}\n", equal ? "equal" : "different");
    std::fflush(stdout);
  });
  return world.all_true(equal) ? ExitStatus::done : ExitStatus::negative_result;
}

}  // namespace tutti
