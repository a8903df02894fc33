#include "part_audit.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"
#include "tutti/train/replica.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace tutti {
namespace {

// Where two computations of a part differ first, as far as their contributions show. A wrong forward pass changes the
// batch statistics behind it, and the losses.
TracedValue place_in_contribution(const Network& network, const std::vector<std::int64_t>& one,
                                  const std::vector<std::int64_t>& other) {
  const auto differs = [&](std::size_t slice) { return one[slice] != other[slice]; };
  const std::size_t trained = network.layout().trained().size();
  const std::size_t slices = network.layout().slices().size();
  std::size_t norm = slices + LossSums::kFields;
  for (const NetworkLayer& layer : network.layers()) {
    if (NormSums::needs_sums(layer) && norm < one.size() && differs(norm++)) return {layer.name};
    for (const int slice : layer.parameters) {
      const auto number = static_cast<std::size_t>(slice);
      if (number >= trained && differs(number)) return {layer.name};
    }
  }
  for (std::size_t field = slices; field < slices + LossSums::kFields; ++field) {
    if (differs(field)) return {"loss"};
  }
  for (std::size_t slice = 0; slice < trained; ++slice) {
    const std::string& name = network.layout().slices()[slice].name;
    if (differs(slice)) return {name.substr(0, name.rfind('/')), true};
  }
  return {};
}

ExactAccumulator& require(ExactAccumulator* exact) {
  if (exact != nullptr) return *exact;
  throw Error(ErrorSource::usage, "parts are audited with --exchange exact only: without it their sum is not compared");
}

std::uint64_t digest_of(const std::vector<std::int64_t>& contribution) { return digest("contribution", contribution); }

}  // namespace

std::vector<int> peers_of(int rank, int ranks, const std::vector<std::string>& devices) {
  const auto kind = [&](int of) {
    return devices.empty() ? "" : processor_kind(devices.at(static_cast<std::size_t>(of)));
  };
  std::vector<int> peers;
  for (int peer = 0; peer < ranks; ++peer) {
    if (kind(peer) == kind(rank)) peers.push_back(peer);
  }
  return peers;
}

std::vector<int> wrong_ranks(const std::map<int, AuditedRank>& ranks) {
  std::map<std::vector<std::int64_t>, std::set<int>> holders;
  for (const auto& [rank, computed] : ranks) {
    holders[computed.again].insert(rank);
    for (const auto& first : computed.first) holders[first].insert(rank);
  }
  const auto is_confirmed = [](const auto& value) { return value.second.size() > 1; };
  const auto right = std::ranges::find_if(holders, is_confirmed);
  const bool has_right = std::ranges::count_if(holders, is_confirmed) == 1;
  std::vector<int> wrong;
  std::vector<int> unsteady;
  std::vector<int> changed;
  for (const auto& [rank, computed] : ranks) {
    const auto& first = computed.first;
    const auto differs_from = [&](const auto& value) { return std::ranges::count(first, value) < std::ssize(first); };
    if (has_right && differs_from(right->first)) wrong.push_back(rank);
    if (differs_from(computed.again)) unsteady.push_back(rank);
    if (computed.has_changed) changed.push_back(rank);
  }
  if (has_right) return wrong;
  return unsteady.empty() ? changed : unsteady;
}

AuditDraw draw_audit(std::uint64_t seed, std::int64_t step, std::int64_t global_samples, const PartMap& map,
                     const std::vector<std::string>& devices) {
  RandomSequence random(seed, {.when = static_cast<std::uint32_t>(step), .purpose = random_purpose("part audit")});
  const auto draw_from = [&](std::vector<int>& choices) {
    const auto drawn = choices.begin() + random.below(static_cast<std::uint32_t>(choices.size()));
    const int choice = *drawn;
    choices.erase(drawn);
    return choice;
  };
  std::vector<int> filled;
  for (int part = 0; part < map.num_parts(); ++part) {
    if (part_positions(global_samples, map.num_parts(), part).size() > 0) filled.push_back(part);
  }
  AuditDraw draw{.part = draw_from(filled)};
  draw.owner = map.rank_of(draw.part);
  std::vector<int> others = peers_of(draw.owner, map.num_ranks(), devices);
  std::erase(others, draw.owner);
  draw.auditor = others.empty() ? draw.owner : draw_from(others);
  if (!others.empty()) draw.third = draw_from(others);
  return draw;
}

std::vector<int> AuditDraw::ranks() const {
  std::vector<int> all{owner};
  if (auditor != owner) all.push_back(auditor);
  if (third) all.push_back(*third);
  return all;
}

PartAudit::PartAudit(const AuditedReplica& replica)
    : rank_(replica.state.rank()),
      network_(replica.trainer.network),
      state_(replica.state),
      exact_(require(replica.state.exact())),
      balancer_(replica.balancer),
      workers_(replica.workers),
      initializer_(replica.options.initializer),
      seed_(replica.options.seed),
      every_(replica.options.safeguards.audit_every_steps),
      num_parts_(replica.options.num_parts),
      hosts_(replica.trainer.hosts),
      devices_(replica.trainer.devices),
      norm_sums_(replica.norm_sums),
      read_part_(replica.loader.make_part_reader()),
      records_(rank_.backend, kRecords * (std::ssize(network_.layout().slices()) + 2 * LossSums::kFields),
               ElementType::i64),
      last_confirmed_steps_(static_cast<std::size_t>(rank_.communicator.size())) {
  const bool lacks_third = peers_of(rank_.communicator.rank(), rank_.communicator.size(), devices_).size() == 2;
  if (lacks_third && replica.loader.sampler().steps(0) > 0) known_parts_ = trace_known_parts();
}

void PartAudit::before_parts(PartsOfStep& parts) {
  draw_.reset();
  if ((parts.step + 1) % every_ != 0) return;
  draw_ = draw_audit(seed_, parts.step, parts.batches.global_samples, balancer_.map(), devices_);
  rank_.backend.fill_zero(rank_.stream, records_.values);
  parts.delays_exchange = norm_sums_ != nullptr;
  if (draw_->auditor == rank_.communicator.rank() && !parts.delays_exchange) {
    recording_ = kAudit;
    PartsOfStep audited = audited_part(parts);
    audited.observer = this;
    workers_.compute(audited, [](std::int64_t) {});
    workers_.restore_sums();
  }
  recording_ = kOwn;
  parts.observed_part = draw_->part;
  if (draw_->owner == rank_.communicator.rank()) parts.observer = this;
}

void PartAudit::after_parts(const PartsOfStep& parts) {
  if (!parts.delays_exchange) return;
  norm_digests_.fill(norm_sums_->digests());
  if (draw_->auditor != rank_.communicator.rank()) return;
  const OwnedTensor sums(rank_.backend, rank_.stream, exact_.sums());
  const OwnedTensor largest(rank_.backend, rank_.stream, exact_.largest());
  norm_sums_->begin(NormSums::Replay::in_last_step);
  trace(audited_part(parts), kAudit);
  rank_.backend.copy(rank_.stream, exact_.sums(), sums.values);
  rank_.backend.copy(rank_.stream, exact_.largest(), largest.values);
  rank_.stream.synchronize();
}

StepOutcome PartAudit::after_exchange(const PartsOfStep& parts, StepResult& result) {
  if (!draw_) return StepOutcome::valid;
  const auto recorded = read_records();
  std::uint64_t difference = 0;
  if (draw_->owner == rank_.communicator.rank()) difference += digest_of(recorded[kOwn]);
  if (draw_->auditor == rank_.communicator.rank()) difference -= digest_of(recorded[kAudit]);
  if (rank_.all_reduce(difference) != 0) {
    result.wrong_part = decide(parts, recorded);
    return StepOutcome::wrong;
  }
  for (const int rank : {draw_->owner, draw_->auditor})
    last_confirmed_steps_.at(static_cast<std::size_t>(rank)) = parts.step + 1;
  return StepOutcome::valid;
}

void PartAudit::on_added(Stream& stream, IndexRange elements) {
  exact_.add_digests(stream, elements, record(0, std::ssize(network_.layout().slices())));
}

void PartAudit::on_losses(Stream& stream, const Tensor& before, const Tensor& sums) {
  const auto slices = std::ssize(network_.layout().slices());
  rank_.backend.copy(stream, record(slices, LossSums::kFields), before);
  rank_.backend.copy(stream, record(slices + LossSums::kFields, LossSums::kFields), sums);
}

Tensor PartAudit::record(std::int64_t first, std::int64_t elements) const {
  const std::int64_t begin = recording_ * (records_.values.elements() / kRecords) + first;
  return elements_of(records_.values, {begin, begin + elements});
}

std::vector<PartAudit::Contribution> PartAudit::read_records() {
  std::vector<std::int64_t> all(static_cast<std::size_t>(records_.values.elements()));
  rank_.backend.copy(rank_.stream, {all.data(), records_.values.shape, ElementType::i64}, records_.values);
  rank_.stream.synchronize();
  const std::size_t slices = network_.layout().slices().size();
  std::vector<Contribution> contributions;
  for (auto row = all.cbegin(); row != all.cend(); row += std::ssize(all) / kRecords) {
    LossSums::Fields before{};
    LossSums::Fields after{};
    const auto fields = row + static_cast<std::ptrdiff_t>(slices);
    std::copy_n(fields, LossSums::kFields, before.begin());
    std::copy_n(fields + LossSums::kFields, LossSums::kFields, after.begin());
    Contribution& contribution = contributions.emplace_back(row, fields);
    std::ranges::copy((LossSums::from(after) - LossSums::from(before)).fields(), std::back_inserter(contribution));
    std::ranges::copy(norm_digests_.at(contributions.size() - 1), std::back_inserter(contribution));
  }
  return contributions;
}

PartsOfStep PartAudit::audited_part(const PartsOfStep& parts) {
  return {.batches = read_part_(rank_.stream, draw_->part, parts.batches.epoch, parts.batches.step),
          .seed = parts.seed,
          .step = parts.step,
          .first_layer = parts.first_layer,
          .observed_part = draw_->part};
}

std::vector<std::int64_t> PartAudit::trace(const PartsOfStep& part, Record record) {
  const OwnedTensor sums(rank_.backend, 2 * LossSums::kFields, ElementType::i64);
  const Tensor before = elements_of(sums.values, {0, LossSums::kFields});
  const Tensor after = elements_of(sums.values, {LossSums::kFields, 2 * LossSums::kFields});
  auto digests = workers_.trace(part, after);
  recording_ = record;
  const IndexRange whole{0, exact_.gradients().elements()};
  exact_.begin(rank_.stream);
  exact_.add(rank_.stream, {0, exact_.gradients()}, whole);
  on_added(rank_.stream, whole);
  on_losses(rank_.stream, before, after);
  rank_.stream.synchronize();
  if (norm_sums_ != nullptr) norm_digests_.at(static_cast<std::size_t>(record)) = norm_sums_->digests();
  return digests;
}

// One part might not show the fault: doubling does not change 0.
std::vector<std::int64_t> PartAudit::trace_known_parts() {
  constexpr int kKnownParts = 4;
  std::vector<std::int64_t> digests;
  for (int part = std::max(0, num_parts_ - kKnownParts); part < num_parts_; ++part) {
    const StepBatches& read = read_part_(rank_.stream, part, 0, 0);
    if (read.batches.front().samples == 0) continue;
    if (norm_sums_ != nullptr) norm_sums_->begin(NormSums::Replay::isolated);
    std::ranges::copy(trace({.batches = read, .seed = seed_}, kAgain), std::back_inserter(digests));
  }
  return digests;
}

PartAudit::Repetition PartAudit::repeat(const PartsOfStep& parts) {
  Repetition repetition;
  if (norm_sums_ != nullptr) norm_sums_->begin(NormSums::Replay::in_last_step);
  repetition.trace = trace(audited_part(parts), kAgain);
  repetition.contribution = read_records()[kAgain];
  repetition.has_changed = !draw_->third && !known_parts_.empty() && has_changed();
  return repetition;
}

bool PartAudit::has_changed() {
  const Tensor weights = state_.arena().weights();
  const OwnedTensor current(rank_.backend, rank_.stream, weights);
  initialize(network_, initializer_, seed_, rank_.backend, weights);
  state_.weights().refresh(rank_.stream);
  const bool differs = trace_known_parts() != known_parts_;
  rank_.backend.copy(rank_.stream, weights, current.values);
  state_.weights().refresh(rank_.stream);
  rank_.stream.synchronize();
  return differs;
}

WrongPartReport PartAudit::decide(const PartsOfStep& parts, const std::vector<Contribution>& recorded) {
  const std::vector<int> involved = draw_->ranks();
  Repetition mine;
  if (std::ranges::count(involved, rank_.communicator.rank()) > 0) mine = repeat(parts);
  mine.contribution.resize(recorded[kOwn].size());
  mine.trace.resize(NetworkInstance::traced_values(network_));
  const auto gather = [&](const std::vector<std::int64_t>& values) {
    const auto all = rank_.all_gather(values);
    std::map<int, std::vector<std::int64_t>> by_rank;
    for (const int rank : involved) {
      const auto begin = all.begin() + rank * std::ssize(values);
      by_rank[rank] = {begin, begin + std::ssize(values)};
    }
    return by_rank;
  };
  auto own = gather(recorded[kOwn]);
  auto audits = gather(recorded[kAudit]);
  auto again = gather(mine.contribution);
  auto changed = gather({mine.has_changed ? 1 : 0});
  const auto traces = gather(mine.trace);
  std::map<int, AuditedRank> ranks;
  for (const int rank : involved) ranks[rank] = {.again = again[rank], .has_changed = changed[rank].front() != 0};
  ranks[draw_->owner].first.push_back(own[draw_->owner]);
  ranks[draw_->auditor].first.push_back(audits[draw_->auditor]);

  WrongPartReport report{.step = parts.step + 1, .part = draw_->part, .ranks = wrong_ranks(ranks)};
  report.is_decided = !report.ranks.empty();
  if (!report.is_decided) report.ranks = {draw_->owner, draw_->auditor};
  std::vector<int> others = involved;
  std::erase_if(others, [&](int rank) { return std::ranges::count(report.ranks, rank) > 0; });
  // Two computations that differ: one that was wrong, and if possible another rank's.
  const int one = report.ranks.front();
  const int other = others.empty() ? report.ranks.back() : others.front();
  const auto [difference, end] = std::ranges::mismatch(traces.at(one), traces.at(other));
  report.repeats = difference != traces.at(one).end();
  const auto index = static_cast<std::size_t>(difference - traces.at(one).begin());
  const TracedValue place = report.repeats ? NetworkInstance::traced_value(network_, index)
                                           : place_in_contribution(network_, own[draw_->owner], audits[draw_->auditor]);
  report.layer = place.layer;
  report.pass = place.is_backward ? Phase::backward : Phase::forward;
  report.last_confirmed_step = last_confirmed_steps_.at(static_cast<std::size_t>(one));
  report.text = text_of(report, others);
  return report;
}

std::string PartAudit::name_of_rank(int rank) const {
  std::string name = fmt::format("rank {}", rank);
  const auto index = static_cast<std::size_t>(rank);
  if (!hosts_.empty()) name += " on " + hosts_.at(index);
  if (!devices_.empty()) name += fmt::format(" ({})", devices_.at(index));
  return name;
}

std::string PartAudit::text_of(const WrongPartReport& report, const std::vector<int>& others) const {
  const auto names = [&](const std::vector<int>& ranks) {
    std::vector<std::string> named;
    for (const int rank : ranks) named.push_back(name_of_rank(rank));
    return fmt::format("{}", fmt::join(named, " and "));
  };
  const std::string place = fmt::format("in the {} pass of {}", name_of(report.pass), report.layer);
  std::string text = fmt::format("the audit of step {} found that {} computed part {} ", report.step,
                                 names(report.ranks), report.part);
  if (!report.is_decided) {
    text += fmt::format("differently, first {}, and each repeats its result, so that either may be wrong", place);
  } else {
    text += others.empty() ? "twice with different results" : "wrong";
    if (!others.empty()) text += fmt::format(", unlike {}", names(others));
    text += report.repeats ? fmt::format(", first {}", place) : fmt::format(", first seen {}", place);
    if (!report.repeats && !others.empty()) text += "; repeated, the results are right";
  }
  text += "; the step was not applied";
  if (report.repeats && report.last_confirmed_step > 0) {
    text += fmt::format(", but checkpoints of later steps than {}, the last audit of that rank, may be wrong",
                        report.last_confirmed_step);
  } else if (report.repeats) {
    text += ", but checkpoints of this launch may be wrong, in which that rank was not audited before";
  }
  return text + "; resume (--resume) " + (report.is_decided ? "without that host" : "on other hosts");
}

}  // namespace tutti
