#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/train/trainer_options.hpp"

#include "bench.hpp"
#include "measured_steps.hpp"
#include "run_reports.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <set>
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
  StepAccount account{};  // the mean over the rounds

  const char* mode() const { return weak ? "weak" : "strong"; }
  // The most that a rank computes in a step.
  std::int64_t images_per_rank() const { return (batch + ranks - 1) / ranks; }
  // Of all steps; the median is that of the rounds' medians.
  Quartiles step() const {
    Quartiles step = quartiles_of(steps);
    step.median = quartiles_of(round_medians).median;
    return step;
  }
  double images_per_second() const { return static_cast<double>(batch) / step().median; }
};

std::vector<Exchange> exchanges_of(const Invocation& invocation) {
  std::vector<Exchange> exchanges;
  for (const std::string& word : split(invocation.scaling.exchanges, ',')) {
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
        const std::int64_t batch = invocation.run.trainer.batch_size * (weak ? ranks : 1);
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
  StepAccount lost;
  for (const StepItem& item : kStepItems) {
    const double excess = point.account.*item.seconds - share * first.account.*item.seconds;
    lost.*item.seconds = 100 * excess / point.account.total();
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
  Json time;
  for (const StepItem& item : kStepItems) time[item.name] = point.account.*item.seconds;
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

// The compute of one rank, without the exchange: medians over steps and ranks, the same on all ranks.
struct SoloCompute {
  std::map<std::int64_t, StepTimes> times;  // by images
  std::vector<double> ratios;               // of step times to their median, ascending
  std::vector<std::int64_t> bucket_ends;
  std::vector<bool> exchanged;  // by bucket
};

Json as_json(const StepTimes& times, std::int64_t images) {
  Json stretches = Json::array();
  for (const auto& [seconds, ready_elements] : times.compute) stretches.push_back({seconds, ready_elements});
  return {{"images", images}, {"input", times.input}, {"update", times.update}, {"stretches", stretches}};
}

StepTimes times_in(const Json& json) {
  StepTimes times{.input = json["input"], .compute = {}, .update = json["update"]};
  for (const Json& stretch : json["stretches"]) times.compute.push_back({stretch[0], stretch[1]});
  return times;
}

RunConfig config_alone(const Invocation& invocation, std::int64_t images) {
  RunConfig config = config_for_ranks(invocation, Exchange::ring, 1, images);
  config.processor.gpu.use_graphs = false;  // a CUDA graph does not show when its layers are done
  return config;
}

std::vector<StepTimes> compute_alone(World& alone, const Invocation& invocation, std::int64_t images,
                                     SoloCompute& measured) {
  PreparedTraining run(alone, config_alone(invocation, images));
  measured.bucket_ends = run.trainer->replica().state().ownership().bucket_ends();
  measured.exchanged = run.trainer->replica().state().ownership().exchanged();
  std::vector<StepTimes> steps;
  for (std::int64_t i = 0; i < invocation.steps.warmup; ++i) timed_step(*run.trainer);
  for (std::int64_t i = 0; i < invocation.steps.timed; ++i) steps.push_back(timed_step(*run.trainer));
  return steps;
}

// The images per rank whose compute is measured. Strong scaling also needs that of smaller batches.
std::set<std::int64_t> images_to_compute(const Invocation& invocation, const std::vector<Point>& points) {
  const std::int64_t batch = invocation.run.trainer.batch_size;
  std::set<std::int64_t> images{batch};
  for (const Point& point : points) {
    if (point.weak) continue;
    for (const std::int64_t times : {2, 4, 16}) images.insert(std::max<std::int64_t>(1, batch / times));
    if (invocation.scaling.paced) images.insert(point.images_per_rank());
  }
  return images;
}

// With --paced, only the first rank computes. Collective.
SoloCompute measure_compute(World& world, const Invocation& invocation, const std::set<std::int64_t>& all_images) {
  SoloCompute measured;
  for (const std::int64_t images : all_images) {
    std::vector<StepTimes> steps;
    const auto compute = [&](World& alone) { steps = compute_alone(alone, invocation, images, measured); };
    if (invocation.scaling.paced) {
      on_ranks(world, world.rank() == 0, compute);
    } else {
      const auto alone = world.split(world.rank());
      run_or_throw_on_all(world, [&] { compute(*alone); });
    }
    std::vector<StepTimes> by_rank;
    for (const auto& text : all_gather_text(world, steps.empty() ? "" : as_json(median_of(steps), images).dump())) {
      if (!text.empty()) by_rank.push_back(times_in(Json::parse(text)));
    }
    const StepTimes& median = measured.times[images] = median_of(by_rank);
    std::vector<double> seconds;
    for (const StepTimes& step : steps) seconds.push_back(step.compute_seconds());
    for (const auto& of_rank : all_gather_doubles(world, seconds)) {
      for (const double of_step : of_rank) measured.ratios.push_back(of_step / median.compute_seconds());
    }
  }
  std::ranges::sort(measured.ratios);
  return measured;
}

// Bytes and median seconds of all-reduces of f32 between two ranks.
Json sums_between(World& world, bool takes_part, const RunConfig& config) {
  constexpr std::array<std::int64_t, 5> kBytes{4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20};
  constexpr std::int64_t kPairRounds = 7;
  constexpr double kMaxPairSeconds = 60;
  Json sums = Json::array();
  on_ranks(world, takes_part, [&](World& pair) {
    const Assembly assembly = assemble(pair, config, Log(pair.rank(), pair.host(), true));
    Communicator& communicator = *assembly.communicator;
    const auto stream = assembly.processor.backend->make_stream();
    const Buffer memory = communicator.allocate(static_cast<std::size_t>(kBytes.back()));
    const auto sum = [&](std::int64_t bytes) {
      communicator.all_reduce(memory.view(Shape{bytes / 4}, ElementType::f32), *stream);
      communicator.finish(*stream);
      stream->synchronize();
    };
    std::vector<SumTrial> trials;
    for (const std::int64_t bytes : kBytes) {
      trials.push_back({.once = [&, bytes] { sum(bytes); }, .align = [&] { sum(4); }});
    }
    const auto seconds = time_in_rounds(pair, trials, kPairRounds, kMaxPairSeconds);
    for (std::size_t i = 0; i < trials.size(); ++i) sums.push_back({kBytes[i], quartiles_of(seconds[i]).median});
  });
  return {{"sums_of_two", sums}};
}

// The inputs of `trainer forecast` (tools/companions/trainer-forecast): the compute of independent ranks, and
// all-reduces between two ranks of a node and between two nodes. Valid on rank 0. Collective.
Json measure_forecast_inputs(World& world, const RankOrder& order, const Invocation& invocation, SoloCompute& compute) {
  const std::int64_t batch = invocation.run.trainer.batch_size;
  double crowding = 1;
  if (!invocation.scaling.paced) {
    on_ranks(world, world.rank() == 0, [&](World& alone) {
      const StepTimes first = median_of(compute_alone(alone, invocation, batch, compute));
      crowding = compute.times.at(batch).compute_seconds() / first.compute_seconds();
    });
  }
  RunConfig config = config_alone(invocation, batch);
  config.trainer.num_parts = 2;
  const auto link = [&](bool exists, int other) {
    const bool takes_part = order.position() == 0 || order.position() == other;
    return exists ? sums_between(world, takes_part, config) : Json();
  };
  const Json within = link(order.ranks_of(1) > 1, 1);
  const Json between = link(order.nodes() > 1, order.ranks_of(1));
  Json profiles = Json::array();
  for (const auto& [images, times] : compute.times) profiles.push_back(as_json(times, images));
  return {{"source", fmt::format("measured here, hosts: {}; ranks: {}", order.nodes(), order.ranks())},
          {"model", invocation.run.model},
          {"ranks_per_node", order.ranks_of(1)},
          {"overlaps", true},
          {"bucket_ends", compute.bucket_ends},
          {"exchanged", compute.exchanged},
          {"compute", profiles},
          {"crowding", crowding},
          {"jitter", invocation.scaling.paced ? std::vector{1.0} : compute.ratios},
          {"within", within},
          {"between", between}};
}

// One round on the ranks of this world, with real compute or, if a pace is given, with sleeps. Collective.
void measure_round(World& working, const RunConfig& config, const Invocation& invocation, const StepTimes* pace,
                   Point& point) {
  const TimedSteps& steps = invocation.steps;
  PreparedTraining run(working, config);
  Trainer& trainer = *run.trainer;
  point.oversubscribed = pace == nullptr && !working.all_true(has_room_for(run.assembly.cores, working,
                                                                           run.assembly.config.trainer.threads));
  std::vector<double> seconds;
  std::vector<StepTimes> phases;
  const auto step_by_phase = [&] {
    phases.push_back(pace == nullptr ? timed_step(trainer) : paced_step(trainer, *pace));
  };
  if (pace != nullptr || run.assembly.processor.backend->memory_space() == MemorySpace::host) {
    seconds = time_steps(working, trainer, steps, step_by_phase);
    phases.erase(phases.begin(), phases.end() - steps.timed);
  } else {
    // Waiting for each phase would slow down enqueued steps, so their phases are timed afterwards.
    seconds = time_steps(working, trainer, steps_for(*run.assembly.processor.backend, steps), [&] { trainer.step(); });
    for (std::int64_t i = 0; i < std::min(steps.timed, kMaxStepsByPhase); ++i) step_by_phase();
  }
  const StepAccount account = account_for(working, phases);
  for (const StepItem& item : kStepItems) {
    point.account.*item.seconds += account.*item.seconds / static_cast<double>(invocation.scaling.rounds);
  }
  point.round_medians.push_back(quartiles_of(seconds).median);
  point.steps.insert(point.steps.end(), seconds.begin(), seconds.end());
}

void measure_points(World& world, const RankOrder& order, const Invocation& invocation, const SoloCompute& compute,
                    std::vector<Point>& points) {
  for (std::int64_t round = 1; round <= invocation.scaling.rounds; ++round) {
    for (Point& point : points) {
      const StepTimes* pace = invocation.scaling.paced ? &compute.times.at(point.images_per_rank()) : nullptr;
      RunConfig config = config_for_ranks(invocation, point.exchange, point.ranks, point.batch);
      on_ranks(world, order.position() < point.ranks,
               [&](World& working) { measure_round(working, config, invocation, pace, point); });
      if (world.rank() == 0 && round == invocation.scaling.rounds) print(point, first_of(points, point));
    }
  }
}

// Resolves the options that must not depend on the number of working ranks. Returns the versions of the libraries, and
// Assembly::has_core_for_communication. Throws the same error on all ranks if no run is possible. Collective.
std::pair<std::string, bool> resolve(World& world, Invocation& invocation) {
  RunConfig config =
      config_for_ranks(invocation, Exchange::ring, world.size(), invocation.run.trainer.batch_size * world.size());
  config.trainer.num_parts = 0;  // the same threads as in a training without --threads and --parts
  config.trainer.exchange.shard_optimizer = false;
  const Assembly assembly = assemble(world, config, Log(world.rank(), world.host(), true));
  invocation.run.data.train = assembly.config.data.train;
  invocation.run.trainer.threads = assembly.config.trainer.threads;
  invocation.run.processor.precision = assembly.config.processor.precision;
  return {versions_text(*assembly.processor.backend, world), assembly.has_core_for_communication};
}

}  // namespace

ExitStatus bench_scaling(World& world, const Invocation& asked, CommandContext& /*context*/) {
  Invocation invocation = asked;
  const RankOrder order(world);
  std::vector<Point> points;
  run_or_throw_on_all(world, [&] { points = plan_points(invocation, order); });
  const auto [libraries, has_core_for_communication] = resolve(world, invocation);
  const RunConfig& run = invocation.run;
  const bool is_kept = world.all_true(!invocation.json.empty());
  SoloCompute compute;
  if (invocation.scaling.paced || is_kept) {
    compute = measure_compute(world, invocation, images_to_compute(invocation, points));
  }
  if (world.rank() == 0) print_header(libraries);
  measure_points(world, order, invocation, compute, points);
  if (!is_kept) return ExitStatus::done;

  Json results = Json::array();
  if (world.rank() == 0) {
    for (const Point& point : points) results.push_back(as_json(point, first_of(points, point)));
  }
  Json inputs = measure_forecast_inputs(world, order, invocation, compute);
  inputs["helper_thread"] = has_core_for_communication;
  write_json(world, invocation.json,
             {{"bench", "scaling"},
              {"model", run.model},
              {"data", run.data.train},
              {"precision", name_of(*run.processor.precision)},
              {"libraries", libraries},
              {"hosts", order.hosts()},
              {"threads", run.trainer.threads},
              {"rounds", invocation.scaling.rounds},
              {"paced", invocation.scaling.paced},
              {"batch_size", run.trainer.batch_size},
              {"shard_optimizer", run.trainer.exchange.shard_optimizer},
              {"wire", run.trainer.exchange.wire ? name_of(*run.trainer.exchange.wire) : "auto"},
              {"results", results},
              {"forecast", {{"inputs", inputs}}}});
  return ExitStatus::done;
}

}  // namespace tutti
