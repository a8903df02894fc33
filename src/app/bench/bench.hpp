#pragma once
// Shared parts of the trainer bench commands: running on a subset of the ranks, preparing a training for its first
// step, and timing that includes the slowest rank.

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

// Runs `work` on the ranks that pass true, in their own world, while the others sleep. An error that all working ranks
// throw is thrown on all; an error of a single rank aborts the job. Collective.
void on_ranks(World& world, bool works, const std::function<void(World& working)>& work);

// The user's run, with synthetic data unless --data is given, which ends after `steps` steps.
RunConfig config_for_steps(const Invocation& invocation, std::int64_t steps);
// The number of steps whose phases are timed one by one if steps are enqueued.
inline constexpr std::int64_t kMaxStepsByPhase = 10;
// The run that bench scaling measures on `ranks` ranks with one part each. All rank counts use the same steps. --wire
// applies to the exchanges that have it.
RunConfig config_for_ranks(const Invocation& invocation, Exchange exchange, int ranks, std::int64_t batch);
// The steps to time on this processor. If steps are enqueued, several are timed together, so that none waits.
TimedSteps steps_for(const Backend& backend, TimedSteps steps);
// Calls `step`, which makes one step of the trainer, and returns the seconds per step on the slowest rank: one value
// for each `at_once` steps, after `warmup` steps. Collective.
std::vector<double> time_steps(World& world, Trainer& trainer, const TimedSteps& steps,
                               const std::function<void()>& step);

struct SumTrial {
  // One all-reduce, until its result may be used. Collective.
  std::function<void()> once;
  // Synchronizes the ranks, to within the time of a short all-reduce. Collective.
  std::function<void()> align;
};
// Returns the seconds of one all-reduce by trial and round, on the slowest rank, after a warm-up: the mean of many
// calls between two readings of the clock, as osu_allreduce and nccl-tests measure. Each round runs all trials, so
// that a machine that slows down affects all of them. There are fewer rounds, but at least one, if `max_seconds` have
// passed. Collective.
std::vector<std::vector<double>> time_in_rounds(World& world, const std::vector<SumTrial>& trials, std::int64_t rounds,
                                                double max_seconds);

// The processor time that others than these ranks use on their hosts. Collective.
class OtherLoad {
 public:
  // Begins to measure.
  explicit OtherLoad(World& world);
  struct Host {
    std::string name;
    double cores = 0;  // in use by other processes, on average since the beginning
    int present = 1;   // cores
    int ranks = 0;
  };
  std::vector<Host> hosts() const;

 private:
  World& world_;
  Stopwatch since_;
  double busy_ = 0;  // seconds of this host's cores, of all processes
  double own_ = 0;   // seconds of this process
};
// A warning, if the figures of a host are those of a machine on which ranks wait for a core; otherwise empty.
std::string busy_warning(const std::vector<OtherLoad::Host>& hosts);

// A training that is ready for its first step.
struct PreparedTraining {
  Assembly assembly;
  double assembled_at = 0;  // seconds since the start of the process
  std::optional<Trainer> trainer;

  // `rank_status` is borrowed, or null. Collective.
  PreparedTraining(World& world, const RunConfig& config, RankStatus* rank_status = nullptr);
};

// Orders the ranks of a world by host: measurements on N ranks use the first N in this order.
class RankOrder {
 public:
  // The order as seen by this rank.
  RankOrder(const std::vector<std::string>& host_of_rank, int rank);
  // Collective.
  explicit RankOrder(World& world) : RankOrder(all_gather_text(world, world.host()), world.rank()) {}

  // The position of this rank in the order.
  int position() const { return position_; }
  int ranks() const { return end_of_node_.back(); }
  int nodes() const { return static_cast<int>(hosts_.size()); }
  const std::vector<std::string>& hosts() const { return hosts_; }
  // The number of nodes of the first `ranks` ranks, and the number of ranks on the first `nodes` nodes.
  int nodes_of(int ranks) const;
  int ranks_of(int nodes) const { return end_of_node_.at(static_cast<std::size_t>(nodes - 1)); }

  // Rank counts to measure, ascending: those in `ranks` and those of whole nodes in `nodes`, each ascending and comma
  // separated. With neither: doubling up to a whole node, and from there by nodes. Throws a usage error.
  std::vector<int> counts(const std::string& ranks, const std::string& nodes) const;

 private:
  std::vector<std::string> hosts_;  // by their lowest rank
  std::vector<int> end_of_node_;    // number of ranks on the nodes up to this one
  int position_ = 0;
};

}  // namespace tutti
