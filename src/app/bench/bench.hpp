#pragma once
// What the measurements of trainer bench share: ranks that work while the others sleep, a training ready for its first
// step, and clocks that the slowest rank stops.

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/train/trainer.hpp"

#include "assemble.hpp"
#include "commands.hpp"
#include "output.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// Runs `work` on the ranks that pass true, as a world of their own, while the others sleep. An error that the working
// ranks share is raised on all; one of a single rank ends the job. Collective.
void on_ranks(World& world, bool works, const std::function<void(World& working)>& work);

// The user's run on synthetic data unless other data were given, which ends after `steps` steps.
RunConfig config_for_steps(const Invocation& invocation, std::int64_t steps);
// The steps to time on this processor: several at once where they are enqueued, so that none waits for its end.
TimedSteps steps_for(const Backend& backend, TimedSteps steps);
// Seconds of a step, which `step` has the trainer do, after `warmup` others: one figure for each `at_once` steps, as
// the slowest rank saw it. Collective.
std::vector<double> time_steps(World& world, Trainer& trainer, const TimedSteps& steps,
                               const std::function<void()>& step);

struct SumTrial {
  // One all-reduce, from its start to where its result may be used. Collective.
  std::function<void()> once;
  // Brings the ranks together, up to what a short all-reduce takes. Collective.
  std::function<void()> align;
  std::int64_t at_once = 1;  // all-reduces between two looks at the clock
};
// Short all-reduces are timed several at once, so that bringing the ranks together does not count.
std::int64_t sums_at_once(std::int64_t bytes);
// Seconds of one all-reduce by trial and by round, as the slowest rank saw it, after a few rounds that do not count.
// Rounds go through all trials, so that a machine that slows down does so for all of them. Collective.
std::vector<std::vector<double>> time_in_rounds(World& world, const std::vector<SumTrial>& trials, std::int64_t rounds);

// One training, ready for its first step.
struct Readied {
  Assembly assembly;
  double assembled_at = 0;  // seconds since the start of the process
  std::optional<Trainer> trainer;

  // `rank_status` is borrowed, or null. Collective.
  Readied(World& world, const RunConfig& config, RankStatus* rank_status = nullptr);
};

// The ranks of a world host by host: measurements on some of them take the first in this order.
class RankOrder {
 public:
  // Seen by this rank.
  RankOrder(const std::vector<std::string>& host_of_rank, int rank);
  // Collective.
  explicit RankOrder(World& world) : RankOrder(all_gather_text(world, world.host()), world.rank()) {}

  // This rank's place in the order.
  int position() const { return position_; }
  int ranks() const { return end_of_node_.back(); }
  int nodes() const { return static_cast<int>(hosts_.size()); }
  const std::vector<std::string>& hosts() const { return hosts_; }
  // How many nodes the first `ranks` ranks are on, and how many ranks the first `nodes` nodes have.
  int nodes_of(int ranks) const;
  int ranks_of(int nodes) const { return end_of_node_.at(static_cast<std::size_t>(nodes - 1)); }

  // Rank counts to measure, ascending: those in `ranks` and those of whole nodes in `nodes`, each ascending and comma
  // separated. With neither: doubling up to a whole node, and from there by nodes. Throws a usage error.
  std::vector<int> counts(const std::string& ranks, const std::string& nodes) const;

 private:
  std::vector<std::string> hosts_;  // as they come with ascending ranks
  std::vector<int> end_of_node_;    // how many ranks are on the nodes up to this one
  int position_ = 0;
};

}  // namespace tutti
