#include "tutti/base/error.hpp"
#include "tutti/base/program_name.hpp"
#include "tutti/train/exchange.hpp"

#include "bench.hpp"
#include "rank_order.hpp"
#include "scaling_inputs.hpp"
#include "scaling_point.hpp"
#include "scaling_report.hpp"
#include "whole_launch.hpp"

#include <fmt/format.h>
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

std::vector<ScalingMode> modes_of(const ScalingBench& bench) {
  if (bench.mode == "strong") return {ScalingMode::strong};
  if (bench.mode == "weak") return {ScalingMode::weak};
  return {ScalingMode::strong, ScalingMode::weak};
}

std::vector<std::string> exchanges_of(const Invocation& invocation) {
  std::string text = invocation.scaling.exchanges;
  if (text.empty()) text = invocation.run.exchange == "auto" ? "ring" : invocation.run.exchange;
  std::vector<std::string> exchanges;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) exchanges.emplace_back(name_of(parse_exchange(word)));
  return exchanges;
}

// All points, those of one mode and exchange together, by ranks ascending.
std::vector<ScalingPoint> plan_points(const Invocation& invocation, const RankOrder& order) {
  std::vector<ScalingPoint> points;
  for (const ScalingMode mode : modes_of(invocation.scaling)) {
    for (const std::string& exchange : exchanges_of(invocation)) {
      for (const int ranks : order.counts(invocation.ranks, invocation.scaling.nodes)) {
        const std::int64_t batch = invocation.run.batch_size * (mode == ScalingMode::weak ? ranks : 1);
        points.push_back(
            {.mode = mode, .exchange = exchange, .nodes = order.nodes_of(ranks), .ranks = ranks, .batch = batch});
      }
    }
  }
  return points;
}

const ScalingPoint& first_of(const std::vector<ScalingPoint>& points, const ScalingPoint& point) {
  return *std::ranges::find_if(
      points, [&](const ScalingPoint& other) { return other.mode == point.mode && other.exchange == point.exchange; });
}

void measure_points(World& world, const RankOrder& order, const Invocation& invocation, int threads,
                    const std::optional<MeasuredCompute>& paced, std::vector<ScalingPoint>& points) {
  for (std::int64_t round = 1; round <= invocation.scaling.rounds; ++round) {
    for (ScalingPoint& point : points) {
      std::optional<StepTimes> pace;
      if (paced) pace = times_for(paced->profiles, std::ceil(static_cast<double>(point.batch) / point.ranks));
      on_ranks(world, order.position() < point.ranks, [&](World& working) {
        measure_round(working, config_for(invocation, point, threads), invocation.steps, pace, point);
      });
      if (world.rank() != 0 || round < invocation.scaling.rounds) continue;
      fmt::print("{}", scaling_line(point, first_of(points, point)));
      std::fflush(stdout);
    }
  }
}

// What earlier versions did at once.
void refuse_forecast(const ScalingBench& bench) {
  if (bench.forecast.empty() && bench.between.empty() && bench.forecast_from.empty()) return;
  const std::string file = bench.forecast_from.empty() ? "scaling.json" : bench.forecast_from;
  const std::string ranks = bench.forecast.empty() ? "" : " --ranks " + bench.forecast;
  const std::string between = bench.between.empty() ? "" : " --between " + bench.between;
  throw Error(ErrorSource::usage,
              fmt::format("forecasts are a command of their own: {}{} forecast {}{}{}",
                          bench.forecast_from.empty() ? "measure with --json scaling.json, then type " : "",
                          program_call(), file, ranks, between));
}

}  // namespace

ExitStatus bench_scaling(World& world, const Invocation& invocation) {
  const RankOrder order(world);
  std::vector<ScalingPoint> points;
  run_agreed(world, [&] {
    refuse_forecast(invocation.scaling);
    points = plan_points(invocation, order);
  });
  RunConfig all = config_for(
      invocation, {.exchange = "ring", .ranks = order.ranks(), .batch = invocation.run.batch_size * order.ranks()}, 0);
  const WholeLaunch launch = look_at_launch(world, all);
  const bool is_paced = invocation.scaling.paced;
  const bool is_kept = world.agree(!invocation.json.empty());
  std::optional<MeasuredCompute> compute;
  if (is_paced || is_kept) compute = measure_compute(world, invocation, launch.threads);
  if (world.rank() == 0) fmt::print("{}\n{}", launch.libraries, scaling_head());
  measure_points(world, order, invocation, launch.threads, is_paced ? compute : std::nullopt, points);
  if (!is_kept) return ExitStatus::done;

  Json results = Json::array();
  if (world.rank() == 0) {
    for (const ScalingPoint& point : points) results.push_back(scaling_json(point, first_of(points, point)));
  }
  Json inputs = measure_forecast_inputs(world, order, invocation, launch.threads, *compute);
  inputs["helper_thread"] = launch.exchange_has_core;
  const Json json{{"bench", "scaling"},
                  {"model", invocation.run.model},
                  {"data", all.data},
                  {"precision", invocation.run.precision},
                  {"libraries", launch.libraries},
                  {"hosts", order.hosts()},
                  {"threads", launch.threads},
                  {"rounds", invocation.scaling.rounds},
                  {"paced", is_paced},
                  {"batch_size", invocation.run.batch_size},
                  {"shard_optimizer", invocation.run.shard_optimizer},
                  {"results", results},
                  {"forecast", {{"inputs", inputs}}}};
  write_bench_json(world, invocation.json, json.dump(2) + "\n");
  return ExitStatus::done;
}

}  // namespace tutti
