#include "tutti/base/error.hpp"
#include "tutti/watch/incident.hpp"

#include "incident_kinds.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tutti {
namespace {

constexpr std::int64_t kMost = 1'000'000'000;
constexpr double kMostSeconds = 1e6;

[[noreturn]] void refuse(std::string_view word, const std::string& why) {
  throw Error(ErrorSource::usage, fmt::format("--rehearse {}: {}", word, why));
}

std::string_view trimmed(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(' '), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

// What stands before the mark; the text goes on behind it.
std::string_view take_until(std::string_view& text, char mark) {
  const std::size_t end = std::min(text.find(mark), text.size());
  const std::string_view taken = trimmed(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

// One key=value, with what reads it.
struct Field {
  std::string_view word;
  std::string_view key;
  std::string_view value;

  template <class Number>
  Number number(Number low, Number high) const {
    return number_in(value, low, high, fmt::format("give {} to {}", low, high));
  }

  double positive(double most) const { return number_in(value, 1e-9, most, "give a number above 0"); }

  StepRange steps() const {
    const std::string wanted = "give a step (17) or the first and last of several (5-9)";
    std::string_view rest = value;
    StepRange range;
    range.first = range.last = number_in(take_until(rest, '-'), std::int64_t{1}, kMost, wanted);
    if (value.find('-') != value.npos) range.last = number_in(rest, range.first, kMost, wanted);
    return range;
  }

  std::string text() const {
    if (value.empty()) refuse(word, "give a name");
    return std::string(value);
  }

 private:
  template <class Number>
  Number number_in(std::string_view text, Number low, Number high, const std::string& wanted) const {
    Number number{};
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, number);
    if (status != std::errc{} || rest != end || !(number >= low && number <= high)) refuse(word, wanted);
    return number;
  }
};

Phase phase_of(const Field& field) {
  std::vector<std::string_view> names;
  for (std::uint32_t i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    names.emplace_back(name_of(phase));
    if (names.back() == field.value) return phase;
  }
  refuse(field.word, fmt::format("phase is one of {}", fmt::join(names, ", ")));
}

void read_field(IncidentWish& wish, const Field& field) {
  const std::string_view key = field.key;
  if (key == "seed") wish.seed = field.number(std::uint64_t{0}, ~std::uint64_t{0});
  if (key == "rank") wish.rank = static_cast<int>(field.number(std::int64_t{0}, kMost));
  if (key == "step" || key == "steps") wish.steps = field.steps();
  if (key == "phase") wish.phase = phase_of(field);
  if (key == "seconds") wish.seconds = field.positive(kMostSeconds);
  if (key == "ms") wish.seconds = field.positive(1000 * kMostSeconds) / 1000;
  if (key == "mbps") wish.mbps = field.positive(kMostSeconds);
  if (key == "of") wish.of = field.text();
  if (key == "tensor") wish.tensor = field.text();
  if (key == "element") wish.element = field.number(std::int64_t{0}, std::int64_t{1} << 40);
  if (key == "bit") wish.bit = field.number(0, 31);
  if (key == "bucket") wish.bucket = field.number(std::int64_t{0}, kMost);
}

IncidentWish parse_incident(std::string_view text) {
  const std::string_view all = text;
  IncidentWish wish;
  std::vector<std::string_view> keys{"seed"};
  if (!all.starts_with("seed=")) {
    const std::string_view word = take_until(text, ':');
    const auto kind = std::ranges::find(kIncidentWords, word, &IncidentWords::name);
    if (kind == kIncidentWords.end()) {
      std::vector<std::string_view> names;
      for (const IncidentWords& words : kIncidentWords) names.push_back(words.name);
      refuse(all,
             fmt::format("'{}' is no incident; choose one of {}, or give seed=N alone", word, fmt::join(names, ", ")));
    }
    wish.kind = kind->kind;
    for (std::string_view rest = kind->keys; !rest.empty();) keys.push_back(take_until(rest, ' '));
  }
  while (!text.empty()) {
    const std::string_view word = take_until(text, ',');
    std::string_view value = word;
    const std::string_view key = take_until(value, '=');
    if (std::ranges::find(keys, key) == keys.end()) {
      refuse(all, fmt::format("'{}' is not one of {}", key, fmt::join(keys, ", ")));
    }
    read_field(wish, {word, key, trimmed(value)});
  }
  const bool several = wish.steps && wish.steps->first != wish.steps->last;
  if (several && wish.kind != IncidentKind::delay && wish.kind != IncidentKind::slow_link) {
    refuse(all, "happens once: give one step");
  }
  if (wish.phase == Phase::starting && wish.steps) refuse(all, "starting is before all steps: leave step out");
  if (wish.seconds && wish.mbps) refuse(all, "give ms or mbps, not both");
  return wish;
}

}  // namespace

std::vector<IncidentWish> parse_rehearsal(const std::string& text) {
  std::vector<IncidentWish> wishes;
  for (std::string_view rest = text; !rest.empty();) wishes.push_back(parse_incident(take_until(rest, ';')));
  return wishes;
}

}  // namespace tutti
