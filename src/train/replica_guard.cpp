#include "replica_guard.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tutti {

ReplicaGuard::ReplicaGuard(const TrainerParts& parts, const Safeguards& safeguards, Whereabouts& whereabouts,
                           Replica& replica)
    : replica_(replica),
      hosts_(parts.hosts),
      every_(safeguards.verify_every_steps),
      notes_(replica.passes_on_weights()),
      proof_(parts.backend, parts.communicator, whereabouts, replica.replicated()) {
  if (safeguards.on_divergence == OnDivergence::heal) kept_.emplace(parts.backend, replica);
}

std::optional<DivergenceReport> ReplicaGuard::look(std::int64_t step) {
  const auto found = compare();
  if (!found) {
    proven_ = step;
    suspects_.clear();
    if (kept_) kept_->keep();
    return std::nullopt;
  }
  DivergenceReport report{
      .step = step, .equal_after = proven_, .tensors = found->tensors(), .ranks = found->ranks(), .text = {}};
  report.text = !proven_ ? fmt::format("the replicas differ before the first step of this run: {}", found->text())
                         : fmt::format("the replicas were equal after step {} and differ after step {}: {}", *proven_,
                                       step, found->text());
  const int times = times_in_a_row(*found);
  report.heals = kept_ && proven_ && times < kMostInARow;
  if (report.heals) {
    report.text += fmt::format("; all ranks go back to step {} and play the steps again", *proven_);
  } else if (times >= kMostInARow) {
    report.text += fmt::format(
        "; the {}rd time in a row: this host's memory or processor is not to be trusted; go on "
        "without it, with --resume from the last checkpoint",
        times);
  } else {
    report.text += proven_
                       ? "; go on with --resume from the last checkpoint; with --on-divergence heal a run goes back "
                         "by itself"
                       : "; start it again";
  }
  return report;
}

std::optional<Divergence> ReplicaGuard::compare() {
  auto found = proof_.compare(replica_.stream());
  if (found) found->hosts = hosts_;
  return found;
}

int ReplicaGuard::times_in_a_row(const Divergence& found) {
  std::vector<std::string> tensors = found.tensors();
  std::ranges::sort(tensors);
  std::vector<std::string> common;
  std::ranges::set_intersection(tensors, suspected_, std::back_inserter(common));
  const bool again = found.ranks() == suspects_ && !common.empty();
  in_a_row_ = again ? in_a_row_ + 1 : 1;
  suspects_ = found.ranks();
  suspected_ = again ? std::move(common) : std::move(tensors);
  return in_a_row_;
}

const RunPosition& ReplicaGuard::go_back() {
  kept_->bring_back();
  proof_.forget(replica_.stream());
  if (const auto found = compare()) {
    throw Error(ErrorSource::diverged,
                fmt::format("what was kept of step {} has changed since: {}; this host's memory or processor is not to "
                            "be trusted: go on from the last checkpoint with --resume, without it",
                            *proven_, found->text()))
        .on_all_ranks();
  }
  return kept_->position;
}

}  // namespace tutti
