#include "bench.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/nn/model_file.hpp"

#include "option_table.hpp"
#include "plan_choices.hpp"
#include "run_config.hpp"
#include "run_reports.hpp"
#include "streams_and_signals.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <utility>

namespace tutti {
namespace {

// The seconds that the cores of this host have not been idle, since its start.
double busy_seconds_of_host() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0;
  file >> cpu >> user >> nice >> system;
  return file ? (user + nice + system) / static_cast<double>(::sysconf(_SC_CLK_TCK)) : 0;
}

double cores_of_host() { return static_cast<double>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))); }

}  // namespace

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
  if (!invocation.run.given.contains("data")) config.data.train = "synthetic:4096x1x28x28:10";
  config.trainer.steps = steps;
  config.trainer.epochs = 1'000'000;
  config.trainer.test_every_epochs = 0;
  return config;
}

RunConfig config_for_ranks(const Invocation& invocation, Exchange exchange, int ranks, std::int64_t batch) {
  RunConfig config = config_for_steps(invocation, invocation.steps.warmup + invocation.steps.timed + kMaxStepsByPhase);
  config.trainer.batch_size = batch;
  config.trainer.num_parts = ranks;
  config.exchange = exchange;
  std::optional<Wire>& wire = config.trainer.exchange.wire;
  if (wire && !can_send(exchange, *wire)) wire.reset();
  // Every step has a whole batch, even one larger than the data.
  if (!invocation.run.given.contains("last-batch")) config.trainer.last_batch = LastBatch::rollover;
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

std::vector<std::vector<double>> time_in_rounds(World& world, const std::vector<SumTrial>& trials, std::int64_t rounds,
                                                double max_seconds) {
  constexpr double kSecondsOfALoop = 2e-3;
  constexpr std::int64_t kMaxCalls = 1000;
  const Stopwatch whole;
  // The first calls bring the ranks into step: a rank that gave up its core may start late.
  const auto seconds_per_call = [](const SumTrial& trial, std::int64_t calls) {
    trial.align();
    for (int first = 0; first < 2; ++first) trial.once();
    const Stopwatch watch;
    for (std::int64_t done = 0; done < calls; ++done) trial.once();
    return watch.seconds() / static_cast<double>(calls);
  };
  std::vector<double> estimates;
  for (const SumTrial& trial : trials) estimates.push_back(seconds_per_call(trial, 1));
  estimates = max_over_ranks(world, estimates);
  std::vector<std::vector<double>> seconds(trials.size());
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const double calls = kSecondsOfALoop / std::max(estimates[i], 1e-9);
      seconds[i].push_back(seconds_per_call(trials[i], std::clamp<std::int64_t>(std::llround(calls), 1, kMaxCalls)));
      // A first estimate may contain a rank's wait for its core.
      estimates[i] = max_over_ranks(world, {std::min(estimates[i], seconds[i].back())}).front();
    }
    if (max_over_ranks(world, {whole.seconds()}).front() > max_seconds) break;
  }
  for (auto& of_trial : seconds) of_trial = max_over_ranks(world, std::move(of_trial));
  return seconds;
}

OtherLoad::OtherLoad(World& world) : world_(world), busy_(busy_seconds_of_host()), own_(process_cpu_seconds()) {}

std::vector<OtherLoad::Host> OtherLoad::hosts() const {
  const double seconds = since_.seconds();
  const auto all =
      all_gather_doubles(world_, {busy_seconds_of_host() - busy_, process_cpu_seconds() - own_, cores_of_host()});
  const auto names = all_gather_text(world_, world_.host());
  std::vector<Host> hosts;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    auto host = std::ranges::find(hosts, names[rank], &Host::name);
    if (host == hosts.end()) {
      host =
          hosts.insert(host, {.name = names[rank], .cores = all[rank][0], .present = static_cast<int>(all[rank][2])});
    }
    host->cores -= all[rank][1];
    ++host->ranks;
  }
  for (Host& host : hosts) host.cores = seconds > 0 ? std::max(0.0, host.cores / seconds) : 0;
  return hosts;
}

std::string busy_warning(const std::vector<OtherLoad::Host>& hosts) {
  constexpr double kTolerance = 0.3;  // cores
  for (const OtherLoad::Host& host : hosts) {
    if (host.ranks + host.cores <= host.present + kTolerance) continue;
    return fmt::format(
        "host {} is busy: {} share its {} with other processes that use {:.1f} cores, so the times include "
        "waits for a core: measure on idle hosts, with at most one rank per core",
        host.name, plural(host.ranks, "rank"), plural(host.present, "core"), host.cores);
  }
  return {};
}

PreparedTraining::PreparedTraining(World& world, const RunConfig& config, RankStatus* rank_status)
    : assembly(assemble(world, config, Log(world.rank(), world.host(), true))),
      assembled_at(seconds_since_process_start()) {
  const RunMetadata facts{.configuration = config_text(assembly.config),
                          .model = model_text(assembly.network->spec()),
                          .versions = versions_text(*assembly.processor.backend, world),
                          .data_digest = assembly.data_digest};
  build_with_shared_choices(world, assembly.config.processor, *assembly.processor.backend,
                            Log(world.rank(), world.host(), true), [&] {
                              TrainerContext context = assembly.trainer_context(*assembly.processor.backend);
                              context.rank_status = rank_status;
                              trainer.emplace(context, assembly.config.trainer, facts);
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
