#include "option_errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // edits[i][j]: from the first i characters of a to the first j of b
  std::vector<std::vector<std::size_t>> edits(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      edits[i][j] = i + j;
      if (i == 0 || j == 0) continue;
      const std::size_t changed = edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      edits[i][j] = std::min({changed, edits[i - 1][j] + 1, edits[i][j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
    }
  }
  return edits.back().back();
}

// What options of PyTorch's trainers and launchers are here; empty for others.
std::string_view counterpart_of(std::string_view written) {
  constexpr std::pair<std::string_view, std::string_view> kCounterparts[]{
      {"--amp", "--precision bf16 is mixed precision"},
      {"--learning-rate", "it is --lr"},
      {"--drop-last", "it is --last-batch discard"},
      {"--num-workers", "idle cores decode the images; --in-flight sets how many steps are prefetched"},
      {"--sync-bn", "it is --batch-norm global"},
      {"--gradient-accumulation-steps", "use --parts: it cuts each global batch into that many parts"}};
  const auto* const found =
      std::ranges::find(kCounterparts, written, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kCounterparts) ? std::string_view() : found->second;
}

// The known word with the smallest edit distance (letters left out, added, changed, or swapped with their neighbors).
// Empty if that is more than one edit for every three letters.
std::string nearest_word(std::string_view written, const std::vector<std::string>& known) {
  std::string nearest;
  std::size_t smallest = written.size() / 3 + 1;
  for (const std::string& word : known) {
    const std::size_t distance = edit_distance(written, word);
    if (distance >= smallest) continue;
    smallest = distance;
    nearest = word;
  }
  return nearest;
}

}  // namespace

std::string_view moved_to(std::string_view written) {
  constexpr std::string_view kForecast =
      "'trainer forecast FILE --ranks N..M --between US,GBS' forecasts from the file that bench scaling --json writes";
  constexpr std::pair<std::string_view, std::string_view> kMoved[]{
      {"tensorboard", "'trainer tensorboard RUN' makes TensorBoard's files from the run's folder"},
      {"mlperf-log", "'trainer mlperf-log RUN' makes MLPerf's log from the run's folder"},
      {"on-divergence heal",
       "leave it out. A run whose replicas differ ends with 87, and --resume continues it from its newest checkpoint, "
       "to the same bits; the scripts in jobs/ do so by themselves"},
      {"forecast", kForecast},
      {"forecast-from", kForecast},
      {"between", kForecast},
      {"bench layers", "'trainer bench step' times whole steps, 'perf record' with it each loop"},
      {"tiled-convolutions", "all convolutions and linear layers on CPUs are Tutti's own"}};
  if (written.starts_with("--")) written.remove_prefix(2);
  const auto* const found = std::ranges::find(kMoved, written, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kMoved) ? std::string_view() : found->second;
}

std::string suggestion_for(std::string_view written, const std::vector<std::string>& known, std::string_view help) {
  if (!moved_to(written).empty()) return std::string(moved_to(written));
  if (!counterpart_of(written).empty()) return std::string(counterpart_of(written));
  const std::string nearest = nearest_word(written, known);
  return nearest.empty() ? fmt::format("see {}", help) : fmt::format("did you mean '{}'? See {}", nearest, help);
}

}  // namespace tutti
