#include "scaling_inputs.hpp"

#include "readied.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>
#include <utility>

namespace tutti {
namespace {

constexpr std::array<std::int64_t, 5> kLinkBytes{4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20};
constexpr std::int64_t kLinkRepeats = 7;
// Strong scaling asks for the compute of so many times smaller batches, too.
constexpr std::array<std::int64_t, 3> kSmallerBatches{2, 4, 16};

// As doubles, so that ranks can pass them on.
std::vector<double> packed(const StepTimes& times) {
  std::vector<double> figures{times.input, times.update};
  for (const StepTimes::Stretch& stretch : times.compute) {
    figures.push_back(stretch.seconds);
    figures.push_back(static_cast<double>(stretch.final_elements));
  }
  return figures;
}

StepTimes unpacked(std::span<const double> figures) {
  StepTimes times{.input = figures[0], .compute = {}, .update = figures[1]};
  for (std::size_t i = 2; i + 1 < figures.size(); i += 2) {
    times.compute.push_back({.seconds = figures[i], .final_elements = static_cast<std::int64_t>(figures[i + 1])});
  }
  return times;
}

struct SoloRun {
  std::vector<StepTimes> steps;
  std::vector<std::int64_t> bucket_ends;
};

SoloRun compute_alone(World& alone, const RunConfig& config, const TimedSteps& steps) {
  Readied run(alone, config);
  SoloRun solo{.steps = {}, .bucket_ends = run.trainer->bucket_ends()};
  for (std::int64_t i = 0; i < steps.warmup + steps.timed; ++i) {
    StepTimes times = run.trainer->timed_step();
    if (i >= steps.warmup) solo.steps.push_back(std::move(times));
  }
  return solo;
}

std::vector<TimedSum> time_between(World& world, bool takes_part, const RunConfig& config) {
  std::vector<TimedSum> sums;
  on_ranks(world, takes_part, [&](World& pair) {
    const Assembly assembly = assemble(pair, config, nullptr, Log(pair.rank(), pair.host(), true));
    sums = time_all_reduce(pair, {*assembly.backend, *assembly.communicator}, {kLinkBytes.begin(), kLinkBytes.end()},
                           kLinkRepeats);
  });
  return sums;
}

// Ascending.
std::set<std::int64_t> images_a_rank(const Invocation& invocation) {
  const std::int64_t batch = invocation.run.batch_size;
  std::set<std::int64_t> images{batch};
  if (invocation.scaling.mode == "weak") return images;
  for (const std::int64_t times : kSmallerBatches) images.insert(std::max<std::int64_t>(1, batch / times));
  return images;
}

// Adds what the ranks saw who computed.
void add_profile(World& world, const SoloRun& solo, std::int64_t images, MeasuredCompute& measured) {
  std::vector<StepTimes> by_rank;
  for (const auto& figures :
       all_gather_figures(world, solo.steps.empty() ? std::vector<double>{} : packed(median_of(solo.steps)))) {
    if (!figures.empty()) by_rank.push_back(unpacked(figures));
  }
  measured.profiles.push_back({.images = images, .times = median_of(by_rank)});
  std::vector<double> seconds;
  for (const StepTimes& step : solo.steps) seconds.push_back(step.compute_seconds());
  for (const auto& theirs : all_gather_figures(world, seconds)) {
    for (const double its : theirs) {
      measured.ratios.push_back(its / measured.profiles.back().times.compute_seconds());
    }
  }
  measured.bucket_ends = solo.bucket_ends;
}

RunConfig config_alone(const Invocation& invocation, std::int64_t images, int threads) {
  RunConfig config = config_for(invocation, {.exchange = "ring", .batch = images}, threads);
  config.record_steps = "off";  // a recorded step does not tell when its layers are done
  return config;
}

}  // namespace

MeasuredCompute measure_compute(World& world, const Invocation& invocation, int threads) {
  MeasuredCompute measured;
  for (const std::int64_t images : images_a_rank(invocation)) {
    const RunConfig config = config_alone(invocation, images, threads);
    SoloRun solo;
    if (invocation.scaling.paced) {
      on_first_ranks(world, 1, [&](World& alone) { solo = compute_alone(alone, config, invocation.steps); });
    } else {
      const auto alone = world.split(world.rank());
      run_agreed(world, [&] { solo = compute_alone(*alone, config, invocation.steps); });
    }
    add_profile(world, solo, images, measured);
  }
  std::ranges::sort(measured.ratios);
  return measured;
}

ForecastInputs measure_forecast_inputs(World& world, const RankOrder& order, const Invocation& invocation, int threads,
                                       const MeasuredCompute& compute) {
  ForecastInputs inputs;
  inputs.source = fmt::format("measured here, hosts: {}; ranks: {}", order.nodes(), order.ranks());
  inputs.model = invocation.run.model;
  inputs.ranks_per_node = order.ranks_of(1);
  inputs.compute = compute.profiles;
  inputs.bucket_ends = compute.bucket_ends;
  RunConfig config = config_alone(invocation, invocation.run.batch_size, threads);
  if (!invocation.scaling.paced) {
    inputs.jitter = compute.ratios;
    SoloRun first;
    on_first_ranks(world, 1, [&](World& alone) { first = compute_alone(alone, config, invocation.steps); });
    if (world.rank() == 0) {
      inputs.crowding = inputs.compute.back().times.compute_seconds() / median_of(first.steps).compute_seconds();
    }
  }
  config.parts = 2;
  const auto link_between = [&](int one, int other) {
    const auto sums = time_between(world, order.position() == one || order.position() == other, config);
    Link link;
    run_agreed(world, [&] {
      if (!sums.empty()) link = fit_link(sums, 2);
    });
    return link;
  };
  if (order.ranks_of(1) > 1) inputs.within = link_between(0, 1);
  if (const auto& given = invocation.scaling.between; !given.empty()) {
    inputs.between = Link{.latency = given[0] / 1e6, .bytes_per_second = given[1] * 1e9};
    inputs.source += "; the link between nodes: given";
  } else if (order.nodes() > 1) {
    inputs.between = link_between(0, order.ranks_of(1));
  }
  return inputs;
}

std::optional<double> misfit_of(const ForecastInputs& inputs, const std::vector<ScalingPoint>& points,
                                const Invocation& invocation) {
  std::optional<double> misfit;
  for (const ScalingPoint& point : points) {
    if (point.oversubscribed || point.nodes > 2 || point.ranks % inputs.ranks_per_node != 0) continue;
    const ForecastQuestion question = question_for(invocation, point.mode, point.exchange);
    const double foretold = forecast(inputs, question, point.ranks).step_seconds;
    misfit = std::max(misfit.value_or(0), std::abs(foretold / point.spread().median - 1));
  }
  return misfit;
}

}  // namespace tutti
