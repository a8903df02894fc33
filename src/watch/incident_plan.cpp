#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"
#include "tutti/watch/incident.hpp"

#include "incident_kinds.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorSource::usage, fmt::format("--rehearse: {}", why));
}

// What is drawn for one incident: each item for itself, so that naming one changes no other.
class Draws {
 public:
  Draws(std::uint64_t seed, std::size_t incident) : seed_(seed), incident_(static_cast<std::uint32_t>(incident)) {}

  std::int64_t between(std::string_view item, std::int64_t low, std::int64_t high) const {
    const auto purpose = random_purpose(fmt::format("rehearse/{}", item));
    RandomSequence random(seed_, {.item = incident_, .purpose = purpose});
    const std::int64_t most = std::numeric_limits<std::uint32_t>::max();
    return low + random.below(static_cast<std::uint32_t>(std::min(high - low + 1, most)));
  }
  template <class Items>
  const auto& one_of(std::string_view item, const Items& items) const {
    return items[static_cast<std::size_t>(between(item, 0, std::ssize(items) - 1))];
  }

 private:
  std::uint64_t seed_;
  std::uint32_t incident_;
};

void require_below(std::string_view item, std::int64_t value, std::int64_t end, const std::string& of) {
  if (value < 0 || value >= end) {
    refuse(fmt::format("{} {} is not there: {} has {} 0 to {}", item, value, of, item, end - 1));
  }
}

std::vector<std::string> distinct(std::vector<std::string> names) {
  std::vector<std::string> once;
  for (std::string& name : names) {
    if (std::ranges::find(once, name) == once.end()) once.push_back(std::move(name));
  }
  return once;
}

// The names, by the member, of those tensors that have the wanted name by the other.
std::vector<std::string> names_among(const std::vector<HeldTensor>& tensors, std::string HeldTensor::*name,
                                     std::string HeldTensor::*other, const std::optional<std::string>& wanted) {
  std::vector<std::string> names;
  for (const HeldTensor& tensor : tensors) {
    if (!wanted || tensor.*other == *wanted) names.push_back(tensor.*name);
  }
  return distinct(std::move(names));
}

std::string choose_name(const Draws& draws, std::string_view item, const std::vector<std::string>& names,
                        const std::optional<std::string>& wanted) {
  if (!wanted) return draws.one_of(item, names);
  if (std::ranges::find(names, *wanted) == names.end()) {
    refuse(fmt::format("{} '{}' is nothing that every rank holds: choose one of {}", item, *wanted,
                       fmt::join(names, ", ")));
  }
  return *wanted;
}

// "momentum" is the optimizer's, whatever it calls the first that it keeps.
std::optional<std::string> state_name(const std::optional<std::string>& wanted,
                                      const std::vector<HeldTensor>& tensors) {
  if (wanted != "momentum") return wanted;
  const auto first = std::ranges::find_if(tensors, [](const HeldTensor& held) {
    return held.of != "weights" && held.of != "statistics" && held.of != kGradients;
  });
  return first == tensors.end() ? wanted : first->of;
}

BitFlip plan_flip(const IncidentWish& wish, const Draws& draws, const std::vector<HeldTensor>& tensors) {
  const auto all = names_among(tensors, &HeldTensor::name, &HeldTensor::of, {});
  if (wish.tensor) choose_name(draws, "tensor", all, wish.tensor);
  BitFlip flip;
  flip.of = choose_name(draws, "of", names_among(tensors, &HeldTensor::of, &HeldTensor::name, wish.tensor),
                        state_name(wish.of, tensors));
  flip.tensor =
      choose_name(draws, "tensor", names_among(tensors, &HeldTensor::name, &HeldTensor::of, flip.of), wish.tensor);
  const auto tensor = std::ranges::find_if(
      tensors, [&](const HeldTensor& held) { return held.of == flip.of && held.name == flip.tensor; });
  if (wish.element) require_below("element", *wish.element, tensor->elements, tensor->name);
  flip.element = wish.element.value_or(draws.between("element", 0, tensor->elements - 1));
  flip.bit = wish.bit.value_or(static_cast<int>(draws.between("bit", 0, 31)));
  return flip;
}

StepRange plan_steps(const IncidentWish& wish, const Incident& incident, const Draws& draws, const StepRange& steps) {
  if (incident.phase == Phase::starting) return {};
  const std::int64_t first = wish.steps ? wish.steps->first : draws.between("step", steps.first, steps.last);
  if (incident.kind == IncidentKind::slow_link && !wish.steps) {
    return {first, draws.between("last step", first, steps.last)};
  }
  const std::int64_t last = wish.steps ? wish.steps->last : first;
  if (first < steps.first || last > steps.last) {
    refuse(fmt::format("step {} is not one of this run, which goes from step {} to {}",
                       first < steps.first ? first : last, steps.first, steps.last));
  }
  return {first, last};
}

Incident plan_incident(const IncidentWish& wish, const Draws& draws, const RehearsalStage& stage) {
  if (stage.steps.last < stage.steps.first) refuse("no step is left in which anything could happen");
  Incident incident;
  incident.kind = wish.kind.value_or(draws.one_of("kind", kIncidentWords).kind);
  if (wish.rank) require_below("rank", *wish.rank, stage.ranks, "this job");
  incident.rank = wish.rank.value_or(static_cast<int>(draws.between("rank", 0, stage.ranks - 1)));
  incident.phase = wish.phase.value_or(draws.one_of("phase", kDrawnPhases));
  const StepRange steps = plan_steps(wish, incident, draws, stage.steps);
  incident.first_step = steps.first;
  incident.last_step = steps.last;
  switch (incident.kind) {
    case IncidentKind::kill:
    case IncidentKind::stop:
      break;
    case IncidentKind::delay:
      incident.seconds = wish.seconds.value_or(static_cast<double>(draws.between("seconds", 1, 20)) / 10);
      break;
    case IncidentKind::flip:
      incident.flip = plan_flip(wish, draws, stage.tensors);
      break;
    case IncidentKind::drop_bucket:
      if (wish.bucket) require_below("bucket", *wish.bucket, stage.buckets, "the exchange");
      incident.bucket = wish.bucket.value_or(draws.between("bucket", 0, stage.buckets - 1));
      break;
    case IncidentKind::slow_link:
      incident.seconds = wish.seconds.value_or(0);
      if (!wish.seconds) incident.mbps = wish.mbps.value_or(static_cast<double>(draws.between("mbps", 50, 1000)));
      break;
  }
  return incident;
}

std::string moment_of(const Incident& incident) {
  const std::string steps = incident.first_step == incident.last_step
                                ? fmt::format("step {}", incident.first_step)
                                : fmt::format("steps {} to {}", incident.first_step, incident.last_step);
  switch (incident.phase) {
    case Phase::starting:
    case Phase::ending:
      return fmt::format("in {}", name_of(incident.phase));
    case Phase::evaluation:
    case Phase::checkpoint:
      return fmt::format("in the first {} from {} on", name_of(incident.phase), steps);
    default:
      return fmt::format("at {} in {}", steps, name_of(incident.phase));
  }
}

}  // namespace

std::vector<Incident> plan_incidents(const std::vector<IncidentWish>& wishes, const RehearsalStage& stage) {
  std::vector<Incident> incidents;
  for (const IncidentWish& wish : wishes) {
    incidents.push_back(plan_incident(wish, Draws(wish.seed, incidents.size()), stage));
  }
  return incidents;
}

std::string text_of(const Incident& incident) {
  const std::string rank = fmt::format("rank {}", incident.rank);
  switch (incident.kind) {
    case IncidentKind::kill:
      return fmt::format("{} is killed {}", rank, moment_of(incident));
    case IncidentKind::stop:
      return fmt::format("{} is stopped {}", rank, moment_of(incident));
    case IncidentKind::delay:
      return fmt::format("{} is delayed by {} s {}", rank, incident.seconds, moment_of(incident));
    case IncidentKind::flip:
      return fmt::format("{} has bit {} of element {} of {} {} flipped {} step {}", rank, incident.flip.bit,
                         incident.flip.element, incident.flip.of, incident.flip.tensor,
                         incident.flip.of == kGradients ? "after the exchange of" : "at the end of",
                         incident.first_step);
    case IncidentKind::drop_bucket:
      return fmt::format("{} drops bucket {} of step {}", rank, incident.bucket, incident.first_step);
    case IncidentKind::slow_link:
      return fmt::format("{} has a link of {} in steps {} to {}", rank,
                         incident.mbps > 0 ? fmt::format("{} Mbit/s", incident.mbps)
                                           : fmt::format("{} ms a sum", 1000 * incident.seconds),
                         incident.first_step, incident.last_step);
  }
  return rank;
}

}  // namespace tutti
