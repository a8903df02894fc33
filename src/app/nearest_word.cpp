#include "nearest_word.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

std::size_t slips_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_before(b.size() + 1);
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> now(b.size() + 1);
  std::iota(before.begin(), before.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({changed, before[j] + 1, now[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], two_before[j - 2] + 1);
    }
    two_before = std::exchange(before, std::exchange(now, std::move(two_before)));
  }
  return before.back();
}

}  // namespace

std::string nearest_word(std::string_view written, const std::vector<std::string>& known) {
  std::string nearest;
  std::size_t fewest = written.size() / 3 + 1;
  for (const std::string& word : known) {
    const std::size_t slips = slips_between(written, word);
    if (slips >= fewest) continue;
    fewest = slips;
    nearest = word;
  }
  return nearest;
}

std::string_view moved_to(std::string_view written) {
  constexpr std::pair<std::string_view, std::string_view> kMoved[]{
      {"tensorboard", "'trainer tensorboard RUN' makes TensorBoard's files from the run's folder"},
      {"mlperf-log", "'trainer mlperf-log RUN' makes MLPerf's log from the run's folder"},
      {"bench layers", "'trainer bench step' times whole steps, ONEDNN_VERBOSE=1 with it each call of oneDNN"}};
  if (written.starts_with("--")) written.remove_prefix(2);
  const auto* const found = std::ranges::find(kMoved, written, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kMoved) ? std::string_view() : found->second;
}

std::string what_to_do(std::string_view written, const std::vector<std::string>& known, std::string_view help) {
  if (!moved_to(written).empty()) return std::string(moved_to(written));
  const std::string nearest = nearest_word(written, known);
  return nearest.empty() ? fmt::format("see {}", help) : fmt::format("did you mean '{}'? See {}", nearest, help);
}

}  // namespace tutti
