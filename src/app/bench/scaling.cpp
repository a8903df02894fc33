#include "tutti/base/error.hpp"
#include "tutti/train/trainer_options.hpp"

#include "bench.hpp"
#include "measured_steps.hpp"
#include "run_reports.hpp"
#include "scaling_inputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// One rank count with one exchange, strong or weak, measured in rounds.
struct Point {
  bool weak = false;
  Exchange exchange = Exchange::ring;
  int nodes = 1;
  int ranks = 1;
  std::int64_t batch = 0;
  bool oversubscribed = false;
  std::vector<double> steps{};  // seconds, of all rounds
  std::vector<double> round_medians{};
  std::vector<StepAccount> rounds{};

  const char* mode() const { return weak ? "weak" : "strong"; }
  // Of all steps; the median is that of the rounds' medians.
  Quartiles step() const {
    Quartiles step = quartiles_of(steps);
    step.median = quartiles_of(round_medians).median;
    return step;
  }
  StepAccount account() const { return mean_of(rounds); }
  double images_per_second() const { return static_cast<double>(batch) / step().median; }
};

std::vector<Exchange> exchanges_of(const Invocation& invocation) {
  std::vector<Exchange> exchanges;
  std::istringstream words(invocation.scaling.exchanges);
  for (std::string word; std::getline(words, word, ',');) {
    const auto exchange = value_named<Exchange>(word);
    if (!exchange) {
      throw Error(ErrorSource::usage,
                  fmt::format("--exchanges {}: give some of {}, with commas", invocation.scaling.exchanges,
                              fmt::join(enum_names(Exchange{}), ", ")));
    }
    exchanges.push_back(*exchange);
  }
  if (exchanges.empty()) exchanges.push_back(invocation.run.exchange.value_or(Exchange::ring));
  return exchanges;
}

// All points, grouped by mode and exchange, by ascending ranks.
std::vector<Point> plan_points(const Invocation& invocation, const RankOrder& order) {
  std::vector<Point> points;
  for (const bool weak : {false, true}) {
    if (invocation.scaling.mode == (weak ? ScalingMode::strong : ScalingMode::weak)) continue;
    for (const Exchange exchange : exchanges_of(invocation)) {
      for (const int ranks : order.counts(invocation.ranks, invocation.scaling.nodes)) {
        const std::int64_t batch = invocation.run.batch_size * (weak ? ranks : 1);
        points.push_back(
            {.weak = weak, .exchange = exchange, .nodes = order.nodes_of(ranks), .ranks = ranks, .batch = batch});
      }
    }
  }
  return points;
}

// The point of the same mode and exchange with the fewest ranks, the baseline of efficiency and lost time.
const Point& first_of(const std::vector<Point>& points, const Point& point) {
  return *std::ranges::find_if(
      points, [&](const Point& other) { return other.weak == point.weak && other.exchange == point.exchange; });
}

double efficiency(const Point& point, const Point& first) {
  return point.images_per_second() / first.images_per_second() * first.ranks / point.ranks;
}

// The time that a step takes in excess of ideal scaling of the first point's compute, by cause, in per cent of the
// step.
StepAccount lost(const Point& point, const Point& first) {
  const double share = point.weak ? 1.0 : static_cast<double>(first.ranks) / point.ranks;
  const StepAccount now = point.account();
  const StepAccount ideal = first.account();
  StepAccount lost;
  for (const StepItem& item : kStepItems) {
    lost.*item.seconds = 100 * (now.*item.seconds - share * ideal.*item.seconds) / now.total();
  }
  return lost;
}

void print_header(const std::string& libraries) {
  fmt::print(
      "{}\n{:>57} {:>8} {:>29}\n{:>6} {:>8} {:>5} {:>5} {:>6} {:>9} {:>8} {:>8} {:>9} {:>6} {:>6} {:>6} {:>6} {:>5} "
      "{:>6}\n",
      libraries, "", "", "lost, % of the step", "mode", "exchange", "nodes", "ranks", "batch", "median ms", "25 % ms",
      "75 % ms", "images/s", "effic.", "comp.", "imbal.", "exch.", "input", "update");
}

void print(const Point& point, const Point& first) {
  const Quartiles step = point.step();
  const StepAccount gone = lost(point, first);
  fmt::print(
      "{:>6} {:>8} {:>5} {:>5} {:>6} {:>9.2f} {:>8.2f} {:>8.2f} {:>9.0f} {:>6.2f} {:>6.1f} {:>6.1f} {:>6.1f} {:>5.1f} "
      "{:>6.1f}{}\n",
      point.mode(), name_of(point.exchange), point.nodes, point.ranks, point.batch, step.median * 1e3, step.low * 1e3,
      step.high * 1e3, point.images_per_second(), efficiency(point, first), gone.compute, gone.imbalance, gone.exchange,
      gone.input, gone.update, point.oversubscribed ? "  oversubscribed" : "");
  std::fflush(stdout);
}

Json as_json(const Point& point, const Point& first) {
  const Quartiles step = point.step();
  const StepAccount account = point.account();
  Json time;
  for (const StepItem& item : kStepItems) time[item.name] = account.*item.seconds;
  return {{"mode", point.mode()},
          {"exchange", name_of(point.exchange)},
          {"nodes", point.nodes},
          {"ranks", point.ranks},
          {"batch", point.batch},
          {"step_seconds_median", step.median},
          {"step_seconds_low_quartile", step.low},
          {"step_seconds_high_quartile", step.high},
          {"images_per_second", point.images_per_second()},
          {"efficiency", efficiency(point, first)},
          {"oversubscribed", point.oversubscribed},
          {"time", time}};
}

// One round on the ranks of this world, with real compute or, if a pace is given, with sleeps. Collective.
void measure_round(World& working, const RunConfig& config, const TimedSteps& steps,
                   const std::optional<StepTimes>& pace, Point& point) {
  PreparedTraining run(working, config);
  Trainer& trainer = *run.trainer;
  point.oversubscribed =
      !pace && !working.all_true(run.assembly.config.threads * working.local_size() <= run.assembly.cores.usable);
  std::vector<double> seconds;
  std::vector<StepTimes> phases;
  const auto step_by_phase = [&] { phases.push_back(pace ? paced_step(trainer, *pace) : timed_step(trainer)); };
  if (pace || run.assembly.backend->memory_space() == MemorySpace::host) {
    seconds = time_steps(working, trainer, steps, step_by_phase);
    phases.erase(phases.begin(), phases.end() - steps.timed);
  } else {
    // Waiting for each phase would slow down enqueued steps, so their phases are timed afterwards.
    seconds = time_steps(working, trainer, steps_for(*run.assembly.backend, steps), [&] { trainer.step(); });
    for (std::int64_t i = 0; i < std::min(steps.timed, kMaxStepsByPhase); ++i) step_by_phase();
  }
  point.rounds.push_back(account_for(working, phases));
  point.round_medians.push_back(quartiles_of(seconds).median);
  point.steps.insert(point.steps.end(), seconds.begin(), seconds.end());
}

void measure_points(World& world, const RankOrder& order, const Invocation& invocation, int threads,
                    const std::optional<MeasuredCompute>& paced, std::vector<Point>& points) {
  for (std::int64_t round = 1; round <= invocation.scaling.rounds; ++round) {
    for (Point& point : points) {
      std::optional<StepTimes> pace;
      if (paced) pace = times_for(paced->profiles, std::ceil(static_cast<double>(point.batch) / point.ranks));
      RunConfig config = config_for_ranks(invocation, point.ranks, point.batch, threads);
      config.exchange = point.exchange;
      on_ranks(world, order.position() < point.ranks,
               [&](World& working) { measure_round(working, config, invocation.steps, pace, point); });
      if (world.rank() == 0 && round == invocation.scaling.rounds) print(point, first_of(points, point));
    }
  }
}

// Properties of the launch that do not depend on the number of working ranks.
struct Launch {
  std::string libraries;
  int threads = 1;  // per part, for a run without --threads and --parts
  Precision precision = Precision::fp32;
  bool has_core_for_communication = false;
};

// Throws the same error on all ranks if no run is possible. Collective.
Launch launch_of(World& world, RunConfig config) {
  config.parts = 0;  // the same threads as in a training without --threads and --parts
  config.part_map = "even";
  config.shard_optimizer = false;
  const Assembly assembly = assemble(world, config, Log(world.rank(), world.host(), true));
  return {.libraries = versions_text(*assembly.backend, world),
          .threads = static_cast<int>(assembly.config.threads),
          .precision = *assembly.config.precision,
          .has_core_for_communication = assembly.has_core_for_communication};
}

}  // namespace

ExitStatus bench_scaling(World& world, const Invocation& asked, CommandContext& /*context*/) {
  Invocation invocation = asked;
  const RankOrder order(world);
  std::vector<Point> points;
  run_or_throw_on_all(world, [&] { points = plan_points(invocation, order); });
  const RunConfig all = config_for_ranks(invocation, order.ranks(), invocation.run.batch_size * order.ranks(), 0);
  const Launch launch = launch_of(world, all);
  invocation.run.precision = launch.precision;  // also for fewer ranks
  const bool is_paced = invocation.scaling.paced;
  const bool is_kept = world.all_true(!invocation.json.empty());
  std::optional<MeasuredCompute> compute;
  if (is_paced || is_kept) compute = measure_compute(world, invocation, launch.threads);
  if (world.rank() == 0) print_header(launch.libraries);
  measure_points(world, order, invocation, launch.threads, is_paced ? compute : std::nullopt, points);
  if (!is_kept) return ExitStatus::done;

  Json results = Json::array();
  if (world.rank() == 0) {
    for (const Point& point : points) results.push_back(as_json(point, first_of(points, point)));
  }
  Json inputs = measure_forecast_inputs(world, order, invocation, launch.threads, *compute);
  inputs["helper_thread"] = launch.has_core_for_communication;
  write_json(world, invocation.json,
             {{"bench", "scaling"},
              {"model", invocation.run.model},
              {"data", all.data},
              {"precision", name_of(launch.precision)},
              {"libraries", launch.libraries},
              {"hosts", order.hosts()},
              {"threads", launch.threads},
              {"rounds", invocation.scaling.rounds},
              {"paced", is_paced},
              {"batch_size", invocation.run.batch_size},
              {"shard_optimizer", invocation.run.shard_optimizer},
              {"results", results},
              {"forecast", {{"inputs", inputs}}}});
  return ExitStatus::done;
}

}  // namespace tutti
