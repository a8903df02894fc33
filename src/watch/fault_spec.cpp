#include "tutti/watch/fault_spec.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"
#include "tutti/base/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <set>
#include <string_view>

// Parses faults as users write them, and draws the fields that are left out.

namespace tutti {
namespace {

constexpr std::int64_t kMaxNumber = 1'000'000'000;
constexpr double kMaxSeconds = 1e6;

// By kind: the keys that it accepts besides seed. `of` is the block of a flip: weights, statistics, gradients or a slot
// of the optimizer.
constexpr std::array<std::string_view, enum_names(FaultKind{}).size()> kKeys{
    "rank step phase",
    "rank step phase",
    "rank step steps phase seconds ms",
    "rank step of tensor element bit",
    "rank step bucket",
    "rank step steps mbps ms",
    "rank step steps layer pass kind element bit position"};
// Those that a seed alone may draw; `wrong` is the last.
constexpr std::int64_t kDrawnKinds = std::ssize(kKeys) - 1;

constexpr std::array<std::string_view, 2> kPasses{name_of(Phase::forward), name_of(Phase::backward)};

// The phases that every step of every rank has.
constexpr std::array<Phase, 5> kDrawnPhases{Phase::data, Phase::forward, Phase::backward, Phase::exchange,
                                            Phase::update};

[[noreturn]] void refuse(std::string_view word, const std::string& why) {
  throw Error(ErrorSource::usage, fmt::format("--rehearse{}{}: {}", word.empty() ? "" : " ", word, why));
}

// A fault as it was written, and the draws of the fields that were left out. Each is drawn independently, so that
// giving one changes no other.
struct Request {
  Fault fault{};
  std::uint64_t seed = 0;
  std::uint32_t index = 0;             // among the faults
  std::set<std::string_view> given{};  // the keys of fields that were given, and "fault" for its kind

  bool has(std::string_view key) const { return given.contains(key); }

  std::int64_t draw(std::string_view item, std::int64_t low, std::int64_t high) const {
    const auto purpose = random_purpose(fmt::format("rehearse/{}", item));
    RandomSequence random(seed, {.item = index, .purpose = purpose});
    const std::int64_t max = std::numeric_limits<std::uint32_t>::max();
    return low + random.below(static_cast<std::uint32_t>(std::min(high - low + 1, max)));
  }
  // The number that was given, or a random one below `end`.
  std::int64_t below(std::string_view item, std::int64_t number, std::int64_t end, const std::string& owner) const {
    if (!has(item)) return draw(item, 0, end - 1);
    if (number < end) return number;
    refuse("", fmt::format("{} {} does not exist: {} has {} 0 to {}", item, number, owner, item, end - 1));
  }
  // The name that was given, or a random one.
  std::string among(std::string_view item, const std::string& name, const std::vector<std::string>& names) const {
    if (!has(item)) return names[static_cast<std::size_t>(draw(item, 0, std::ssize(names) - 1))];
    if (std::ranges::find(names, name) != names.end()) return name;
    refuse("", fmt::format("{} '{}' is not {}: choose one of {}", item, name,
                           item == "layer" ? "in the network" : "replicated on every rank", fmt::join(names, ", ")));
  }
};

// Removes the text before the mark, and the mark, and returns that text.
std::string_view take_until(std::string_view& text, char mark) {
  const std::size_t end = std::min(text.find(mark), text.size());
  const std::string_view taken = trimmed(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

// `word` is the whole field, for messages.
template <class Number>
Number number_in(std::string_view word, std::string_view text, Number low, Number high, const std::string& wanted) {
  const auto number = parse_number<Number>(text);
  if (!number || !(*number >= low && *number <= high)) refuse(word, wanted);
  return *number;
}

void read_steps(Fault& fault, std::string_view word, std::string_view value) {
  const std::string wanted = "give a step (17) or a range of steps (5-9)";
  const bool is_range = value.find('-') != value.npos;
  fault.first_step = fault.last_step = number_in(word, take_until(value, '-'), std::int64_t{1}, kMaxNumber, wanted);
  if (is_range) fault.last_step = number_in(word, value, fault.first_step, kMaxNumber, wanted);
}

// The enumerator with this name, if it is one of the names.
template <class Enum, std::size_t n>
Enum named(std::string_view word, std::string_view name, const std::array<std::string_view, n>& names) {
  if (std::ranges::find(names, name) == names.end()) {
    refuse(word, fmt::format("{} is one of {}", word.substr(0, word.find('=')), fmt::join(names, ", ")));
  }
  return *value_named<Enum>(name);
}

void read_field(Request& request, std::string_view word, std::string_view key, std::string_view value) {
  const auto number = [&](auto low, auto high) {
    return number_in(word, value, low, high, fmt::format("give {} to {}", low, high));
  };
  const auto positive = [&](double max) { return number_in(word, value, 1e-9, max, "give a number above 0"); };
  const auto text = [&] {
    if (value.empty()) refuse(word, "give a name");
    return std::string(value);
  };
  Fault& fault = request.fault;
  if (key == "seed") request.seed = number(std::uint64_t{0}, ~std::uint64_t{0});
  if (key == "rank") fault.rank = static_cast<int>(number(std::int64_t{0}, kMaxNumber));
  if (key == "step" || key == "steps") read_steps(fault, word, value);
  if (key == "phase") fault.phase = named<Phase>(word, value, enum_names(Phase{}));
  if (key == "seconds") fault.seconds = positive(kMaxSeconds);
  if (key == "ms") fault.seconds = positive(1000 * kMaxSeconds) / 1000;
  if (key == "mbps") fault.mbps = positive(kMaxSeconds);
  if (key == "of") fault.flip.block = text();
  if (key == "tensor") fault.flip.tensor = text();
  if (key == "element") fault.flip.element = number(std::int64_t{0}, std::int64_t{1} << 40);
  if (key == "bit") fault.flip.bit = number(0, 31);
  if (key == "bucket") fault.bucket = number(std::int64_t{0}, kMaxNumber);
  if (key == "layer") fault.wrong.layer = text();
  if (key == "position") fault.wrong.position = number(std::int64_t{0}, kMaxNumber);
  if (key == "pass") fault.phase = named<Phase>(word, value, kPasses);
  if (key == "kind") fault.wrong.kind = named<WrongKind>(word, value, enum_names(WrongKind{}));
  request.given.insert(key == "steps" ? "step" : key == "ms" ? "seconds" : key);
}

Request parse_fault(std::string_view text, std::size_t index) {
  const std::string_view all = text;
  Request request{.index = static_cast<std::uint32_t>(index)};
  Fault& fault = request.fault;
  std::vector<std::string_view> keys{"seed"};
  if (!all.starts_with("seed=")) {
    const std::string_view word = take_until(text, ':');
    const auto kind = value_named<FaultKind>(word);
    if (!kind) {
      refuse(all, fmt::format("'{}' is not a fault; choose one of {}, or give seed=N alone", word,
                              fmt::join(enum_names(FaultKind{}), ", ")));
    }
    fault.kind = *kind;
    request.given.insert("fault");
    std::string_view rest = kKeys.at(static_cast<std::size_t>(*kind));
    while (!rest.empty()) keys.push_back(take_until(rest, ' '));
  }
  while (!text.empty()) {
    const std::string_view word = take_until(text, ',');
    std::string_view value = word;
    const std::string_view key = take_until(value, '=');
    if (std::ranges::find(keys, key) == keys.end()) {
      refuse(all, fmt::format("'{}' is not one of {}", key, fmt::join(keys, ", ")));
    }
    read_field(request, word, key, trimmed(value));
  }
  const bool lasts =
      fault.kind == FaultKind::delay || fault.kind == FaultKind::slow_link || fault.kind == FaultKind::wrong;
  if (fault.first_step != fault.last_step && !lasts) {
    refuse(all, "happens once: give one step");
  }
  if (fault.phase == Phase::starting && request.has("step")) {
    refuse(all, "starting comes before the first step: leave step out");
  }
  if (request.has("seconds") && request.has("mbps")) refuse(all, "give ms or mbps, not both");
  return request;
}

std::vector<Request> parse(const std::string& text) {
  std::vector<Request> requests;
  for (std::string_view rest = text; !rest.empty();) {
    requests.push_back(parse_fault(take_until(rest, ';'), requests.size()));
  }
  return requests;
}

using Tensors = std::vector<FlipTarget>;

// The distinct values of `member` among the tensors whose `other` is the wanted one (if it is not empty).
std::vector<std::string> names_among(const Tensors& tensors, std::string FlipTarget::*member,
                                     std::string FlipTarget::*other, const std::string& wanted) {
  std::vector<std::string> names;
  for (const FlipTarget& tensor : tensors) {
    if (!wanted.empty() && tensor.*other != wanted) continue;
    if (std::ranges::find(names, tensor.*member) == names.end()) names.push_back(tensor.*member);
  }
  return names;
}

// "momentum" means the optimizer's first slot.
std::string state_name(const std::string& given, const Tensors& tensors) {
  if (given != "momentum") return given;
  const auto first = std::ranges::find_if(tensors, [](const FlipTarget& tensor) {
    return tensor.block != "weights" && tensor.block != "statistics" && tensor.block != "gradients";
  });
  return first == tensors.end() ? given : first->block;
}

void plan_flip(Request& request, const Tensors& tensors) {
  constexpr auto kName = &FlipTarget::name;
  constexpr auto kBlock = &FlipTarget::block;
  BitFlip& flip = request.fault.flip;
  if (request.has("tensor")) request.among("tensor", flip.tensor, names_among(tensors, kName, kBlock, ""));
  flip.block = request.among("of", state_name(flip.block, tensors), names_among(tensors, kBlock, kName, flip.tensor));
  flip.tensor = request.among("tensor", flip.tensor, names_among(tensors, kName, kBlock, flip.block));
  const auto tensor = std::ranges::find_if(
      tensors, [&](const FlipTarget& each) { return each.block == flip.block && each.name == flip.tensor; });
  flip.element = request.below("element", flip.element, tensor->elements, tensor->name);
  if (!request.has("bit")) flip.bit = static_cast<int>(request.draw("bit", 0, 31));
}

void plan_wrong(Request& request, const std::vector<std::string>& layers) {
  WrongResult& wrong = request.fault.wrong;
  wrong.layer = request.among("layer", wrong.layer, layers);
  if (!request.has("pass")) request.fault.phase = request.draw("pass", 0, 1) == 0 ? Phase::forward : Phase::backward;
  if (!request.has("kind")) wrong.kind = static_cast<WrongKind>(request.draw("wrong kind", 0, 2));
  wrong.element = request.has("element") ? request.fault.flip.element : request.draw("element", 0, kMaxNumber);
  wrong.bit = request.has("bit") ? request.fault.flip.bit : static_cast<int>(request.draw("bit", 0, 31));
}

void plan_steps(Request& request, const StepRange& steps) {
  std::int64_t& first = request.fault.first_step;
  std::int64_t& last = request.fault.last_step;
  if (request.fault.phase == Phase::starting) return;
  if (!request.has("step")) {
    first = last = request.draw("step", steps.first, steps.last);
    if (request.fault.kind == FaultKind::slow_link) last = request.draw("last step", first, steps.last);
  }
  if (first >= steps.first && last <= steps.last) return;
  refuse("", fmt::format("step {} is not in this run, which has steps {} to {}", first < steps.first ? first : last,
                         steps.first, steps.last));
}

Fault plan_fault(Request request, const RehearsedRun& run) {
  if (run.steps.last < run.steps.first) refuse("", "no steps are left in which a fault could be injected");
  Fault& fault = request.fault;
  if (!request.has("fault")) fault.kind = static_cast<FaultKind>(request.draw("kind", 0, kDrawnKinds - 1));
  fault.rank = static_cast<int>(request.below("rank", fault.rank, run.ranks, "this job"));
  if (!request.has("phase") && fault.kind != FaultKind::wrong) {
    fault.phase = kDrawnPhases.at(static_cast<std::size_t>(request.draw("phase", 0, std::ssize(kDrawnPhases) - 1)));
  }
  plan_steps(request, run.steps);
  const bool has_seconds = request.has("seconds");
  if (fault.kind == FaultKind::delay && !has_seconds) {
    fault.seconds = static_cast<double>(request.draw("seconds", 1, 20)) / 10;
  }
  if (fault.kind == FaultKind::flip) plan_flip(request, run.tensors);
  if (fault.kind == FaultKind::wrong) plan_wrong(request, run.layers);
  if (fault.kind == FaultKind::drop_bucket) {
    fault.bucket = request.below("bucket", fault.bucket, run.buckets, "the exchange");
  }
  if (fault.kind == FaultKind::slow_link && !has_seconds && !request.has("mbps")) {
    fault.mbps = static_cast<double>(request.draw("mbps", 50, 1000));
  }
  return fault;
}

std::string steps_text(const Fault& fault) {
  return fault.first_step == fault.last_step ? fmt::format("step {}", fault.first_step)
                                             : fmt::format("steps {} to {}", fault.first_step, fault.last_step);
}

std::string moment_of(const Fault& fault) {
  const std::string steps = steps_text(fault);
  switch (fault.phase) {
    case Phase::starting:
    case Phase::ending:
      return fmt::format("in {}", name_of(fault.phase));
    case Phase::evaluation:
    case Phase::checkpoint:
      return fmt::format("in the first {} from {} on", name_of(fault.phase), steps);
    case Phase::data:
    case Phase::forward:
    case Phase::backward:
    case Phase::exchange:
    case Phase::waiting:
    case Phase::update:
    case Phase::reports:
      break;
  }
  return fmt::format("at {} in {}", steps, name_of(fault.phase));
}

}  // namespace

void validate_rehearsal(const std::string& text) { parse(text); }

bool rehearses_wrong_results(const std::string& text) {
  return std::ranges::any_of(parse(text),
                             [](const Request& request) { return request.fault.kind == FaultKind::wrong; });
}

std::uint32_t wrong_word(const WrongResult& wrong, std::uint32_t word) {
  constexpr std::uint32_t kStuck = 0x3F803F80;  // two values in bf16, or one in fp32, near 1
  switch (wrong.kind) {
    case WrongKind::bit:
      return word ^ (std::uint32_t{1} << wrong.bit);
    case WrongKind::scale:
      return std::bit_cast<std::uint32_t>(2 * std::bit_cast<float>(word));
    case WrongKind::stuck:
      return kStuck;
  }
  return word;
}

std::vector<Fault> plan_faults(const std::string& text, const RehearsedRun& run) {
  std::vector<Fault> faults;
  for (const Request& request : parse(text)) faults.push_back(plan_fault(request, run));
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
    case FaultKind::wrong:
      return fmt::format(
          "{} computes the {} pass of {} wrong {} {}: {} value {} {}", rank, name_of(fault.phase), fault.wrong.layer,
          fault.first_step == fault.last_step ? "once at" : "always at", steps_text(fault),
          fault.wrong.kind == WrongKind::bit ? fmt::format("bit {} of", fault.wrong.bit) : "its", fault.wrong.element,
          std::array{"is flipped", "is doubled", "is stuck"}.at(static_cast<std::size_t>(fault.wrong.kind)));
  }
  return rank;
}

}  // namespace tutti
