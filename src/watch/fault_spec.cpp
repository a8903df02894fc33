#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"
#include "tutti/watch/rehearsal.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>

// Parses faults as users write them, and draws the fields that are left out.

namespace tutti {
namespace {

constexpr std::int64_t kMaxNumber = 1'000'000'000;
constexpr double kMaxSeconds = 1e6;

// By kind: the keys that it accepts besides seed.
constexpr std::array<std::string_view, enum_names(FaultKind{}).size()> kKeys{
    "rank step phase",  "rank step phase",        "rank step steps phase seconds ms", "rank step of tensor element bit",
    "rank step bucket", "rank step steps mbps ms"};

// The phases that every step of every rank has.
constexpr std::array<Phase, 5> kDrawnPhases{Phase::data, Phase::forward, Phase::backward, Phase::exchange,
                                            Phase::update};

struct Request {
  std::optional<FaultKind> kind{};
  std::uint64_t seed = 0;
  std::optional<int> rank{};
  std::optional<StepRange> steps{};
  std::optional<Phase> phase{};
  std::optional<double> seconds{};
  std::optional<double> mbps{};
  std::optional<std::string> block{};
  std::optional<std::string> tensor{};
  std::optional<std::int64_t> element{};
  std::optional<int> bit{};
  std::optional<std::int64_t> bucket{};
};

[[noreturn]] void refuse(std::string_view word, const std::string& why) {
  throw Error(ErrorSource::usage, fmt::format("--rehearse{}{}: {}", word.empty() ? "" : " ", word, why));
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

// Removes the text before the mark, and the mark, and returns that text.
std::string_view take_until(std::string_view& text, char mark) {
  const std::size_t end = std::min(text.find(mark), text.size());
  const std::string_view taken = trimmed(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

// One key=value.
struct Field {
  std::string_view word;
  std::string_view key;
  std::string_view value;

  template <class Number>
  Number number(Number low, Number high) const {
    return number_in(value, low, high, fmt::format("give {} to {}", low, high));
  }

  double positive(double max) const { return number_in(value, 1e-9, max, "give a number above 0"); }

  StepRange steps() const {
    const std::string wanted = "give a step (17) or a range of steps (5-9)";
    std::string_view rest = value;
    StepRange range;
    range.first = range.last = number_in(take_until(rest, '-'), std::int64_t{1}, kMaxNumber, wanted);
    if (value.find('-') != value.npos) range.last = number_in(rest, range.first, kMaxNumber, wanted);
    return range;
  }

  Phase phase() const {
    std::vector<std::string_view> names;
    for (std::uint32_t i = 0; i < kPhases; ++i) {
      names.emplace_back(name_of(static_cast<Phase>(i)));
      if (names.back() == value) return static_cast<Phase>(i);
    }
    refuse(word, fmt::format("phase is one of {}", fmt::join(names, ", ")));
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

void read_field(Request& request, const Field& field) {
  const std::string_view key = field.key;
  if (key == "seed") request.seed = field.number(std::uint64_t{0}, ~std::uint64_t{0});
  if (key == "rank") request.rank = static_cast<int>(field.number(std::int64_t{0}, kMaxNumber));
  if (key == "step" || key == "steps") request.steps = field.steps();
  if (key == "phase") request.phase = field.phase();
  if (key == "seconds") request.seconds = field.positive(kMaxSeconds);
  if (key == "ms") request.seconds = field.positive(1000 * kMaxSeconds) / 1000;
  if (key == "mbps") request.mbps = field.positive(kMaxSeconds);
  if (key == "of") request.block = field.text();
  if (key == "tensor") request.tensor = field.text();
  if (key == "element") request.element = field.number(std::int64_t{0}, std::int64_t{1} << 40);
  if (key == "bit") request.bit = field.number(0, 31);
  if (key == "bucket") request.bucket = field.number(std::int64_t{0}, kMaxNumber);
}

Request parse_fault(std::string_view text) {
  const std::string_view all = text;
  Request request;
  std::vector<std::string_view> keys{"seed"};
  if (!all.starts_with("seed=")) {
    const std::string_view word = take_until(text, ':');
    request.kind = value_named<FaultKind>(word);
    if (!request.kind) {
      refuse(all, fmt::format("'{}' is not a fault; choose one of {}, or give seed=N alone", word,
                              fmt::join(enum_names(FaultKind{}), ", ")));
    }
    std::string_view rest = kKeys.at(static_cast<std::size_t>(*request.kind));
    while (!rest.empty()) keys.push_back(take_until(rest, ' '));
  }
  while (!text.empty()) {
    const std::string_view word = take_until(text, ',');
    std::string_view value = word;
    const std::string_view key = take_until(value, '=');
    if (std::ranges::find(keys, key) == keys.end()) {
      refuse(all, fmt::format("'{}' is not one of {}", key, fmt::join(keys, ", ")));
    }
    read_field(request, {word, key, trimmed(value)});
  }
  const bool repeats = request.steps && request.steps->first != request.steps->last;
  if (repeats && request.kind != FaultKind::delay && request.kind != FaultKind::slow_link) {
    refuse(all, "happens once: give one step");
  }
  if (request.phase == Phase::starting && request.steps) {
    refuse(all, "starting comes before the first step: leave step out");
  }
  if (request.seconds && request.mbps) refuse(all, "give ms or mbps, not both");
  return request;
}

std::vector<Request> parse(const std::string& text) {
  std::vector<Request> requests;
  for (std::string_view rest = text; !rest.empty();) requests.push_back(parse_fault(take_until(rest, ';')));
  return requests;
}

// Every field is drawn independently, so that giving one changes no other.
class Draws {
 public:
  Draws(std::uint64_t seed, std::size_t fault) : seed_(seed), fault_(static_cast<std::uint32_t>(fault)) {}

  std::int64_t between(std::string_view item, std::int64_t low, std::int64_t high) const {
    const auto purpose = random_purpose(fmt::format("rehearse/{}", item));
    RandomSequence random(seed_, {.item = fault_, .purpose = purpose});
    const std::int64_t max = std::numeric_limits<std::uint32_t>::max();
    return low + random.below(static_cast<std::uint32_t>(std::min(high - low + 1, max)));
  }
  template <class Items>
  const auto& one_of(std::string_view item, const Items& items) const {
    return items[static_cast<std::size_t>(between(item, 0, std::ssize(items) - 1))];
  }
  // The number that was given, or a random one below `end`.
  std::int64_t below(std::string_view item, std::optional<std::int64_t> asked, std::int64_t end,
                     const std::string& owner) const {
    if (asked && (*asked < 0 || *asked >= end)) {
      refuse("", fmt::format("{} {} does not exist: {} has {} 0 to {}", item, *asked, owner, item, end - 1));
    }
    return asked ? *asked : between(item, 0, end - 1);
  }
  std::string name(std::string_view item, const std::optional<std::string>& asked,
                   const std::vector<std::string>& names) const {
    if (!asked) return one_of(item, names);
    if (std::ranges::find(names, *asked) != names.end()) return *asked;
    refuse("", fmt::format("{} '{}' is not replicated on every rank: choose one of {}", item, *asked,
                           fmt::join(names, ", ")));
  }

 private:
  std::uint64_t seed_;
  std::uint32_t fault_;
};

using Tensors = std::vector<FlipTarget>;

// The distinct values of `member` among the tensors whose `other` is the wanted one (if one is given).
std::vector<std::string> names_among(const Tensors& tensors, std::string FlipTarget::*member,
                                     std::string FlipTarget::*other, const std::optional<std::string>& wanted) {
  std::vector<std::string> names;
  for (const FlipTarget& tensor : tensors) {
    if (wanted && tensor.*other != *wanted) continue;
    if (std::ranges::find(names, tensor.*member) == names.end()) names.push_back(tensor.*member);
  }
  return names;
}

// "momentum" stands for the optimizer's first slot.
std::optional<std::string> state_name(const std::optional<std::string>& asked, const Tensors& tensors) {
  if (asked != "momentum") return asked;
  const auto first = std::ranges::find_if(tensors, [](const FlipTarget& tensor) {
    return tensor.block != "weights" && tensor.block != "statistics" && tensor.block != "gradients";
  });
  return first == tensors.end() ? asked : first->block;
}

BitFlip plan_flip(const Request& request, const Draws& draws, const Tensors& tensors) {
  constexpr auto kName = &FlipTarget::name;
  constexpr auto kBlock = &FlipTarget::block;
  if (request.tensor) draws.name("tensor", request.tensor, names_among(tensors, kName, kBlock, {}));
  BitFlip flip;
  flip.block =
      draws.name("of", state_name(request.block, tensors), names_among(tensors, kBlock, kName, request.tensor));
  flip.tensor = draws.name("tensor", request.tensor, names_among(tensors, kName, kBlock, flip.block));
  const auto tensor = std::ranges::find_if(
      tensors, [&](const FlipTarget& each) { return each.block == flip.block && each.name == flip.tensor; });
  flip.element = draws.below("element", request.element, tensor->elements, tensor->name);
  flip.bit = request.bit.value_or(static_cast<int>(draws.between("bit", 0, 31)));
  return flip;
}

StepRange plan_steps(const Request& request, const Fault& fault, const Draws& draws, const StepRange& steps) {
  if (fault.phase == Phase::starting) return {};
  if (!request.steps) {
    const std::int64_t first = draws.between("step", steps.first, steps.last);
    return {first, fault.kind == FaultKind::slow_link ? draws.between("last step", first, steps.last) : first};
  }
  const auto [first, last] = *request.steps;
  if (first < steps.first || last > steps.last) {
    refuse("", fmt::format("step {} is not in this run, which has steps {} to {}", first < steps.first ? first : last,
                           steps.first, steps.last));
  }
  return {first, last};
}

Fault plan_fault(const Request& request, const Draws& draws, const RehearsedRun& run) {
  if (run.steps.last < run.steps.first) refuse("", "no steps are left in which a fault could be injected");
  Fault fault;
  fault.kind = request.kind.value_or(static_cast<FaultKind>(draws.between("kind", 0, std::ssize(kKeys) - 1)));
  fault.rank = static_cast<int>(draws.below("rank", request.rank, run.ranks, "this job"));
  fault.phase = request.phase.value_or(draws.one_of("phase", kDrawnPhases));
  const StepRange steps = plan_steps(request, fault, draws, run.steps);
  fault.first_step = steps.first;
  fault.last_step = steps.last;
  switch (fault.kind) {
    case FaultKind::kill:
    case FaultKind::stop:
      break;
    case FaultKind::delay:
      fault.seconds = request.seconds.value_or(static_cast<double>(draws.between("seconds", 1, 20)) / 10);
      break;
    case FaultKind::flip:
      fault.flip = plan_flip(request, draws, run.tensors);
      break;
    case FaultKind::drop_bucket:
      fault.bucket = draws.below("bucket", request.bucket, run.buckets, "the exchange");
      break;
    case FaultKind::slow_link:
      fault.seconds = request.seconds.value_or(0);
      if (!request.seconds) fault.mbps = request.mbps.value_or(static_cast<double>(draws.between("mbps", 50, 1000)));
      break;
  }
  return fault;
}

std::string moment_of(const Fault& fault) {
  const std::string steps = fault.first_step == fault.last_step
                                ? fmt::format("step {}", fault.first_step)
                                : fmt::format("steps {} to {}", fault.first_step, fault.last_step);
  switch (fault.phase) {
    case Phase::starting:
    case Phase::ending:
      return fmt::format("in {}", name_of(fault.phase));
    case Phase::evaluation:
    case Phase::checkpoint:
      return fmt::format("in the first {} from {} on", name_of(fault.phase), steps);
    default:
      return fmt::format("at {} in {}", steps, name_of(fault.phase));
  }
}

}  // namespace

void validate_rehearsal(const std::string& text) { parse(text); }

std::vector<Fault> plan_faults(const std::string& text, const RehearsedRun& run) {
  std::vector<Fault> faults;
  for (const Request& request : parse(text)) {
    faults.push_back(plan_fault(request, Draws(request.seed, faults.size()), run));
  }
  return faults;
}

std::string text_of(const Fault& fault) {
  const std::string rank = fmt::format("rank {}", fault.rank);
  switch (fault.kind) {
    case FaultKind::kill:
      return fmt::format("{} is killed {}", rank, moment_of(fault));
    case FaultKind::stop:
      return fmt::format("{} is stopped {}", rank, moment_of(fault));
    case FaultKind::delay:
      return fmt::format("{} is delayed by {} s {}", rank, fault.seconds, moment_of(fault));
    case FaultKind::flip:
      return fmt::format("{} has bit {} of element {} of {} {} flipped {} step {}", rank, fault.flip.bit,
                         fault.flip.element, fault.flip.block, fault.flip.tensor,
                         fault.flip.block == "gradients" ? "after the exchange of" : "at the end of", fault.first_step);
    case FaultKind::drop_bucket:
      return fmt::format("{} drops bucket {} of step {}", rank, fault.bucket, fault.first_step);
    case FaultKind::slow_link:
      return fmt::format("{} has a link of {} in steps {} to {}", rank,
                         fault.mbps > 0 ? fmt::format("{} Mbit/s", fault.mbps)
                                        : fmt::format("{} ms per collective", 1000 * fault.seconds),
                         fault.first_step, fault.last_step);
  }
  return rank;
}

}  // namespace tutti
