#include "bench.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/nn/model_file.hpp"

#include "option_table.hpp"
#include "plan_choices.hpp"
#include "run_config.hpp"
#include "run_reports.hpp"
#include "streams_and_signals.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace tutti {

void on_ranks(World& world, bool works, const std::function<void(World& working)>& work) {
  const auto working = world.split(works ? 0 : -1);
  std::optional<Error> shared;
  try {
    if (working) work(*working);
  } catch (const Error& error) {
    if (error.scope() == ErrorScope::this_rank) throw;
    shared = error;
  }
  if (working) working->close();  // there may be hundreds
  run_or_throw_on_all(world, [&] {
    if (shared) throw *shared;
  });
}

RunConfig config_for_steps(const Invocation& invocation, std::int64_t steps) {
  RunConfig config = invocation.run;
  if (!invocation.run.given.contains("data")) config.data = "synthetic:4096x1x28x28:10";
  config.steps = steps;
  config.epochs = 1'000'000;
  config.test_every = 0;
  config.early_stop = {};
  return config;
}

RunConfig config_for_ranks(const Invocation& invocation, int ranks, std::int64_t batch) {
  RunConfig config = config_for_steps(invocation, invocation.steps.warmup + invocation.steps.timed + kMaxStepsByPhase);
  config.batch_size = batch;
  config.parts = ranks;
  config.exchange = Exchange::ring;
  // Every step has a whole batch, even one larger than the data.
  if (!invocation.run.given.contains("last-batch")) config.last_batch = LastBatch::rollover;
  return config;
}

TimedSteps steps_for(const Backend& backend, TimedSteps steps) {
  if (backend.memory_space() != MemorySpace::host) steps.at_once = 10;
  return steps;
}

std::vector<double> time_steps(World& world, Trainer& trainer, const TimedSteps& steps,
                               const std::function<void()>& step) {
  for (std::int64_t i = 0; i < steps.warmup; ++i) step();
  trainer.synchronize();
  std::vector<double> seconds;
  for (std::int64_t done = 0; done < steps.timed;) {
    const std::int64_t count = std::min(steps.at_once, steps.timed - done);
    const Stopwatch watch;
    for (std::int64_t i = 0; i < count; ++i) step();
    trainer.synchronize();
    seconds.push_back(watch.seconds() / static_cast<double>(count));
    done += count;
  }
  return max_over_ranks(world, std::move(seconds));
}

std::vector<std::vector<double>> time_in_rounds(World& world, const std::vector<SumTrial>& trials,
                                                std::int64_t rounds) {
  constexpr std::int64_t kWarmUps = 3;
  std::vector<std::vector<double>> seconds(trials.size());
  for (std::int64_t round = -kWarmUps; round < rounds; ++round) {
    for (std::size_t i = 0; i < trials.size(); ++i) {
      // Short all-reduces are timed together, so that the time to synchronize the ranks does not matter.
      const std::int64_t at_once = std::clamp<std::int64_t>((1 << 18) / trials[i].bytes, 1, 20);
      trials[i].align();
      const Stopwatch watch;
      for (std::int64_t done = 0; done < at_once; ++done) trials[i].once();
      if (round >= 0) seconds[i].push_back(watch.seconds() / static_cast<double>(at_once));
    }
  }
  for (auto& of_trial : seconds) of_trial = max_over_ranks(world, std::move(of_trial));
  return seconds;
}

PreparedTraining::PreparedTraining(World& world, const RunConfig& config, RankStatus* rank_status)
    : assembly(assemble(world, config, Log(world.rank(), world.host(), true))),
      assembled_at(seconds_since_process_start()) {
  const RunMetadata facts{.configuration = config_text(assembly.config),
                          .model = model_text(assembly.network->spec()),
                          .versions = versions_text(*assembly.backend, world),
                          .data_digest = assembly.data_digest};
  build_with_shared_choices(world, assembly.config, *assembly.backend, Log(world.rank(), world.host(), true), [&] {
    TrainerContext context = assembly.trainer_context(*assembly.backend);
    context.rank_status = rank_status;
    trainer.emplace(context, assembly.options, facts);
  });
}

RankOrder::RankOrder(const std::vector<std::string>& host_of_rank, int rank) {
  for (const std::string& host : host_of_rank) {
    if (std::ranges::find(hosts_, host) == hosts_.end()) hosts_.push_back(host);
  }
  int placed = 0;
  for (const std::string& host : hosts_) {
    for (std::size_t other = 0; other < host_of_rank.size(); ++other) {
      if (host_of_rank[other] != host) continue;
      if (static_cast<int>(other) == rank) position_ = placed;
      ++placed;
    }
    end_of_node_.push_back(placed);
  }
}

int RankOrder::nodes_of(int ranks) const {
  return 1 + static_cast<int>(std::ranges::lower_bound(end_of_node_, ranks) - end_of_node_.begin());
}

std::vector<int> RankOrder::counts(const std::string& ranks, const std::string& nodes) const {
  std::set<int> all;
  const bool neither = ranks.empty() && nodes.empty();
  if (neither || !ranks.empty()) {
    for (const int count : parse_counts("ranks", ranks, neither ? ranks_of(1) : this->ranks())) all.insert(count);
  }
  if (neither || !nodes.empty()) {
    for (const int count : parse_counts("nodes", nodes, this->nodes())) all.insert(ranks_of(count));
  }
  return {all.begin(), all.end()};
}

}  // namespace tutti
