#include "tutti/base/error.hpp"

#include "../several.hpp"
#include "bench.hpp"
#include "forecast.hpp"
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

std::vector<ForecastQuestion> questions_of(const Invocation& invocation) {
  std::vector<ForecastQuestion> questions;
  for (const ScalingMode mode : modes_of(invocation.scaling)) {
    for (const std::string& exchange : exchanges_of(invocation)) {
      questions.push_back(question_for(invocation, mode, exchange));
    }
  }
  return questions;
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

// Prints what is forecast of the points that were measured beside their measurements, and returns it as JSON.
Json tell_comparison(const ForecastInputs& inputs, const std::vector<ScalingPoint>& points,
                     const Invocation& invocation) {
  Json compared = Json::array();
  fmt::print("\n{:>8} {:>6} {:>8} {:>6} {:>12} {:>12} {:>12} {:>16} {:>16} {:>10}\n", "", "mode", "exchange", "ranks",
             "measured ms", "forecast ms", "difference", "measured effic.", "forecast effic.", "against");
  for (const ScalingPoint& point : points) {
    if (point.ranks % inputs.ranks_per_node != 0 && point.ranks > inputs.ranks_per_node) continue;
    if (point.nodes > 1 && !inputs.between) continue;
    const ScalingPoint& first = first_of(points, point);
    const ForecastQuestion question = question_for(invocation, point.mode, point.exchange);
    const double measured = point.spread().median;
    const double foretold = forecast(inputs, question, point.ranks).step_seconds;
    const double growth =
        static_cast<double>(point.batch) * first.ranks / (static_cast<double>(first.batch) * point.ranks);
    const double measured_efficiency = growth * first.spread().median / measured;
    const double foretold_efficiency = growth * forecast(inputs, question, first.ranks).step_seconds / foretold;
    fmt::print("{:>8} {:>6} {:>8} {:>6} {:>12.2f} {:>12.2f} {:>10.1f} % {:>16.2f} {:>16.2f} {:>10}{}\n", "compared",
               name_of(point.mode), point.exchange, point.ranks, measured * 1e3, foretold * 1e3,
               (foretold / measured - 1) * 100, measured_efficiency, foretold_efficiency, several(first.ranks, "rank"),
               point.oversubscribed ? "  oversubscribed" : "");
    compared.push_back({{"mode", name_of(point.mode)},
                        {"exchange", point.exchange},
                        {"ranks", point.ranks},
                        {"measured_seconds", measured},
                        {"forecast_seconds", foretold},
                        {"difference", foretold / measured - 1},
                        {"measured_efficiency", measured_efficiency},
                        {"forecast_efficiency", foretold_efficiency},
                        {"baseline_ranks", first.ranks},
                        {"oversubscribed", point.oversubscribed}});
  }
  return compared;
}

// Prints the forecasts and returns them as JSON.
Json tell_forecast(const ForecastInputs& inputs, const Invocation& invocation) {
  Json points = Json::array();
  Json limits = Json::array();
  fmt::print("\n{}", forecast_inputs_table(inputs));
  const std::vector<int> counts = parse_forecast_ranks(invocation.scaling.forecast);
  for (const ForecastQuestion& question : questions_of(invocation)) {
    std::vector<ForecastPoint> foretold;
    for (const int ranks : counts) {
      foretold.push_back(forecast(inputs, question, ranks));
      points.push_back(forecast_json(foretold.back(), question));
    }
    fmt::print("\n{}efficiency: against 1 rank alone, as it is forecast\n", forecast_table(foretold, question));
    const auto limit = stops_paying(inputs, question, counts.back());
    if (limit) {
      fmt::print("forecast: from {} ranks on, another node adds less than half of what a node does alone\n", *limit);
    } else {
      fmt::print("forecast: up to {} ranks, every node adds more than half of what it does alone\n", counts.back());
    }
    limits.push_back({{"mode", name_of(question.mode)},
                      {"exchange", name_of(question.exchange.kind)},
                      {"ranks", limit ? Json(*limit) : Json(nullptr)}});
  }
  return {{"inputs", Json::parse(forecast_inputs_text(inputs))}, {"points", points}, {"stops_paying", limits}};
}

void refuse_forecast_without_link(const Invocation& invocation, const RankOrder& order) {
  const ScalingBench& bench = invocation.scaling;
  if (bench.forecast.empty()) return;
  const int most = parse_forecast_ranks(bench.forecast).back();
  if (most <= order.ranks() || order.nodes() > 1 || !bench.between.empty()) return;
  throw Error(ErrorSource::usage,
              fmt::format("--forecast {} asks for ranks on other nodes, and this launch has {} ranks on one: start it "
                          "on two nodes, or give the link between nodes in microseconds and GB/s, as --between 2,12.5",
                          bench.forecast, order.ranks()));
}

ExitStatus forecast_from_file(World& world, const Invocation& invocation) {
  Json told;
  run_agreed(world, [&] {
    if (invocation.scaling.forecast.empty()) {
      throw Error(ErrorSource::usage, "--forecast-from needs --forecast with the ranks to forecast, as 2..1024");
    }
    if (world.rank() == 0) told = tell_forecast(read_forecast_inputs(invocation.scaling.forecast_from), invocation);
  });
  write_bench_json(world, invocation.json, Json{{"bench", "scaling"}, {"forecast", told}}.dump(2) + "\n");
  return ExitStatus::done;
}

}  // namespace

ExitStatus bench_scaling(World& world, const Invocation& invocation) {
  if (!invocation.scaling.forecast_from.empty()) return forecast_from_file(world, invocation);
  const RankOrder order(world);
  std::vector<ScalingPoint> points;
  run_agreed(world, [&] {
    points = plan_points(invocation, order);
    refuse_forecast_without_link(invocation, order);
  });
  RunConfig all = config_for(
      invocation, {.exchange = "ring", .ranks = order.ranks(), .batch = invocation.run.batch_size * order.ranks()}, 0);
  const WholeLaunch launch = look_at_launch(world, all);
  std::optional<MeasuredCompute> compute;
  if (invocation.scaling.paced) compute = measure_compute(world, invocation, launch.threads);
  if (world.rank() == 0) fmt::print("{}\n{}", launch.libraries, scaling_head());
  measure_points(world, order, invocation, launch.threads, compute, points);

  Json results = Json::array();
  Json json{{"bench", "scaling"},
            {"model", invocation.run.model},
            {"data", all.data},
            {"precision", invocation.run.precision},
            {"libraries", launch.libraries},
            {"hosts", order.hosts()},
            {"threads", launch.threads},
            {"rounds", invocation.scaling.rounds},
            {"paced", invocation.scaling.paced}};
  if (world.rank() == 0) {
    for (const ScalingPoint& point : points) results.push_back(scaling_json(point, first_of(points, point)));
  }
  json["results"] = results;
  write_bench_json(world, invocation.json, json.dump(2) + "\n");  // whatever becomes of the forecast
  if (!invocation.scaling.forecast.empty()) {
    if (!compute) compute = measure_compute(world, invocation, launch.threads);
    ForecastInputs inputs = measure_forecast_inputs(world, order, invocation, launch.threads, *compute);
    run_agreed(world, [&] {
      if (world.rank() != 0) return;
      inputs.helper_thread = launch.exchange_has_core;
      inputs.misfit = misfit_of(inputs, points, invocation);
      const Json compared = tell_comparison(inputs, points, invocation);
      const std::string refusal = extrapolation_refusal(inputs);
      if (refusal.empty()) {
        json["forecast"] = tell_forecast(inputs, invocation);
      } else {
        fmt::print("\n{}no forecast: {}\n", forecast_inputs_table(inputs), refusal);
        json["forecast"] = {{"inputs", Json::parse(forecast_inputs_text(inputs))},
                            {"points", Json::array()},
                            {"stops_paying", Json::array()},
                            {"refused", refusal}};
      }
      json["forecast"]["compared"] = compared;
    });
    write_bench_json(world, invocation.json, json.dump(2) + "\n");
  }
  return ExitStatus::done;
}

}  // namespace tutti
