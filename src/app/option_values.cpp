#include "option_values.hpp"

#include "tutti/base/error.hpp"

#include "plural.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <numeric>
#include <optional>
#include <system_error>

namespace tutti {
namespace {

constexpr double kLongestSeconds = 1e9;
constexpr double kSecondsBetweenCheckpoints = 900;

// Reads a number from the front of `text`; empty when there is none.
template <class Number>
std::optional<Number> take_number(std::string_view& text) {
  Number number{};
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

// "1h30m", units from the longest to the shortest; or seconds without one.
std::optional<std::int64_t> seconds_by_units(std::string_view text) {
  constexpr std::string_view kUnits = "dhms";
  constexpr std::array<std::int64_t, 4> kSeconds{86400, 3600, 60, 1};
  std::int64_t seconds = 0;
  for (std::size_t next = 0; !text.empty();) {
    const auto count = take_number<std::uint32_t>(text);
    const bool is_bare = text.empty() && next == 0;
    const std::size_t unit = is_bare ? kUnits.size() - 1 : text.empty() ? kUnits.npos : kUnits.find(text.front());
    if (!count || unit == kUnits.npos || unit < next) return std::nullopt;
    seconds += *count * kSeconds[unit];
    next = unit + 1;
    if (!is_bare) text.remove_prefix(1);
  }
  return seconds;
}

// "HH:MM:SS" or "D-HH:MM:SS"
std::optional<std::int64_t> seconds_by_clock(std::string_view text) {
  std::int64_t days = 0;
  if (const auto dash = text.find('-'); dash != text.npos) {
    const auto count = take_number<std::uint32_t>(text);
    if (!count || !text.starts_with('-')) return std::nullopt;
    text.remove_prefix(1);
    days = *count;
  }
  std::int64_t seconds = 0;
  for (int colons = 0; colons < 3; ++colons) {
    if (colons > 0 && !text.starts_with(':')) return std::nullopt;
    if (colons > 0) text.remove_prefix(1);
    const auto count = take_number<std::uint32_t>(text);
    if (!count || (colons > 0 && *count >= 60)) return std::nullopt;
    seconds = 60 * seconds + *count;
  }
  if (!text.empty()) return std::nullopt;
  return 86400 * days + seconds;
}

// "3,3,2": whole numbers from 1 on; empty where the text is anything else.
std::optional<std::vector<int>> read_list(const std::string& text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int number = 0;
    const auto [rest, status] = std::from_chars(at, end, number);
    if (status != std::errc{} || number < 1 || (rest != end && *rest != ',')) return std::nullopt;
    numbers.push_back(number);
    if (rest == end) return numbers;
    at = rest + 1;
  }
}

}  // namespace

CheckpointInterval parse_checkpoint_every(const std::string& text) {
  if (text.empty()) return {.epochs = 1, .seconds = kSecondsBetweenCheckpoints};
  if (text == "end") return {};
  std::string_view unit = text;
  const auto count = take_number<std::int64_t>(unit);
  if (count && *count >= 1 && (unit.empty() || unit == "steps")) return {.steps = *count};
  if (count && *count >= 1 && unit == "epochs") return {.epochs = *count};
  std::string_view rest = text;
  const auto seconds = take_number<double>(rest);
  if (seconds && rest == "s" && *seconds > 0 && *seconds <= kLongestSeconds) return {.seconds = *seconds};
  throw Error(ErrorSource::usage,
              fmt::format("--checkpoint-every {}: give a number of steps (500, 500steps), epochs (1epochs) or seconds "
                          "(600s), or end for the last state alone",
                          text));
}

std::string checkpoint_every_text(const CheckpointInterval& interval) {
  const std::string seconds = fmt::format("{} {}", interval.seconds < 60 ? interval.seconds : interval.seconds / 60,
                                          interval.seconds < 60 ? "seconds" : "minutes");
  if (interval.epochs > 0 && interval.seconds > 0) {
    return fmt::format("each epoch, or every {} where an epoch takes longer", seconds);
  }
  if (interval.epochs > 0) return fmt::format("every {} and at the end", plural(interval.epochs, "epoch"));
  if (interval.steps > 0) return fmt::format("every {} and at the end", plural(interval.steps, "step"));
  return interval.seconds > 0 ? fmt::format("every {} and at the end", seconds) : "at the end alone";
}

double parse_time_limit(const std::string& text) {
  if (text.empty()) return 0;
  const auto seconds = text.find(':') == text.npos ? seconds_by_units(text) : seconds_by_clock(text);
  if (seconds && *seconds > 0 && static_cast<double>(*seconds) <= kLongestSeconds) return static_cast<double>(*seconds);
  throw Error(ErrorSource::usage,
              fmt::format("--time-limit {}: give seconds (3600), or as 90m, 1h30m, 12:00:00 or 1-12:00:00", text));
}

PartMapOptions parse_part_map(const std::string& text) {
  if (text == "even") return {};
  if (text == "auto") return {.measured = true};
  const auto counts = read_list(text);
  if (counts && std::accumulate(counts->begin(), counts->end(), std::int64_t{0}) <= kMostParts) {
    return {.parts_by_rank = *counts};
  }
  throw Error(ErrorSource::usage,
              fmt::format("--part-map {}: give even, auto or each rank's number of parts, as 3,3,2, {} in all at most",
                          text, kMostParts));
}

std::vector<int> parse_counts(std::string_view option, const std::string& text, int all) {
  if (text.empty()) {
    std::vector<int> counts;
    for (int count = 1; count < all; count *= 2) counts.push_back(count);
    counts.push_back(all);
    return counts;
  }
  const auto counts = read_list(text);
  const bool is_ascending = counts && std::ranges::adjacent_find(*counts, std::greater_equal<>()) == counts->end();
  if (is_ascending && counts->back() <= all) return *counts;
  throw Error(ErrorSource::usage,
              fmt::format("--{} {}: give ascending counts of 1 to {}, as 1,2,4", option, text, all));
}

}  // namespace tutti
