#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"

#include "checkpoint_choice.hpp"
#include "checkpoint_tensors.hpp"
#include "differences.hpp"
#include "option_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

namespace tutti {
namespace {

std::string bits_text(float value) {
  return fmt::format("{:.9g} (0x{:08x})", value, std::bit_cast<std::uint32_t>(value));
}

// Empty when they are equal bit for bit.
std::string tensor_difference(const NamedArray& a, const NamedArray& b) {
  if (a.shape != b.shape) return beside("shape", a.shape.text(), b.shape.text());
  std::size_t first = 0;
  std::int64_t different = 0;
  double greatest = 0;
  for (std::size_t i = a.values.size(); i-- > 0;) {
    if (std::bit_cast<std::uint32_t>(a.values[i]) == std::bit_cast<std::uint32_t>(b.values[i])) continue;
    const double difference = std::abs(static_cast<double>(a.values[i]) - static_cast<double>(b.values[i]));
    greatest = std::max(greatest, difference);
    first = i;
    ++different;
  }
  if (different == 0) return {};
  return beside(place_text(a.shape, static_cast<std::int64_t>(first)), bits_text(a.values[first]),
                bits_text(b.values[first])) +
         fmt::format("  {} of {} elements differ, by {:.3g} at most\n", different, a.values.size(), greatest);
}

// The first tensor of a group that differs, and how many do; empty when none does.
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

// What options and evaluations decide besides is no difference of what was trained.
std::string progress_difference(const TrainProgress& a, const TrainProgress& b) {
  const auto text = [](const TrainProgress& progress) {
    return fmt::format("step {}, epoch {} with {} steps and {} samples of the next, {} carried over", progress.step,
                       progress.epoch, progress.step_in_epoch, progress.samples_in_epoch, progress.carried_over);
  };
  if (text(a) != text(b)) return beside("progress", text(a), text(b));
  std::string differences;
  if (a.learning_rate != b.learning_rate) {
    differences += beside("last lr", fmt::format("{}", a.learning_rate), fmt::format("{}", b.learning_rate));
  }
  const auto sums_text = [](const LossSums& sums) {
    return fmt::format("{} correct of {}, loss sum {}", sums.correct, sums.samples, sums.loss());
  };
  if (a.epoch_sums != b.epoch_sums)
    differences += beside("epoch so far", sums_text(a.epoch_sums), sums_text(b.epoch_sums));
  return differences;
}

RunConfig config_of(const TrainState& state, const std::string& path) {
  RunConfig config;
  std::set<std::string> read;
  read_config_text(state.configuration, path, config, read);
  return config;
}

// What was to be computed, on what and by which versions.
std::string facts_that_differ(const TrainState& a, const std::string& path_a, const TrainState& b,
                              const std::string& path_b) {
  std::string text = options_that_differ(config_of(a, path_a), config_of(b, path_b));
  if (a.model != b.model) text += "  their networks differ\n";
  if (a.progress.best != b.progress.best) {
    const auto best_text = [](const BestTest& best) {
      return fmt::format("{} of {} after step {}", best.correct, best.samples, best.step);
    };
    text += beside("best test", best_text(a.progress.best), best_text(b.progress.best));
  }
  if (a.data_digest != b.data_digest) {
    text += beside("data digest", digest_text(a.data_digest), digest_text(b.data_digest));
  }
  if (a.versions != b.versions) text += beside("versions", a.versions, b.versions);
  return text;
}

}  // namespace

std::string options_that_differ(RunConfig a, RunConfig b) {
  const auto options_a = run_options(a);
  const auto options_b = run_options(b);
  std::string text;
  for (std::size_t i = 0; i < options_a.size(); ++i) {
    const std::string of_a = value_text(options_a[i]);
    const std::string of_b = value_text(options_b[i]);
    if (options_a[i].use == OptionUse::fixed && of_a != of_b) text += beside("--" + options_a[i].name, of_a, of_b);
  }
  return text;
}

Comparison compare_checkpoints(const std::string& a, const std::string& b) {
  const LoadedCheckpoint loaded_a = load_checkpoint(a);
  const LoadedCheckpoint loaded_b = load_checkpoint(b);
  const TrainState& of_a = loaded_a.state;
  const TrainState& of_b = loaded_b.state;
  std::string differences = progress_difference(of_a.progress, of_b.progress);
  for (const auto& [group, arrays] : kArrayGroups) differences += group_difference(group, of_a.*arrays, of_b.*arrays);
  return {.compared = true, .differ = !differences.empty(), .text = facts_that_differ(of_a, a, of_b, b) + differences};
}

}  // namespace tutti
