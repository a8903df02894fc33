#include "scaling_inputs.hpp"

#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"

#include "measured_steps.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::int64_t, 5> kLinkBytes{4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20};
constexpr std::int64_t kLinkRepeats = 7;
// Strong scaling also needs the compute of batches smaller by these factors.
constexpr std::array<std::int64_t, 3> kSmallerBatches{2, 4, 16};

// Packs the times as doubles, which ranks can gather.
std::vector<double> packed(const StepTimes& times) {
  std::vector<double> figures{times.input, times.update};
  for (const StepTimes::Interval& interval : times.compute) {
    figures.push_back(interval.seconds);
    figures.push_back(static_cast<double>(interval.final_elements));
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
  PreparedTraining run(alone, config);
  SoloRun solo{.steps = {}, .bucket_ends = run.trainer->replica().bucket_ends()};
  for (std::int64_t i = 0; i < steps.warmup + steps.timed; ++i) {
    StepTimes times = timed_step(*run.trainer);
    if (i >= steps.warmup) solo.steps.push_back(std::move(times));
  }
  return solo;
}

// Bytes and median seconds of all-reduces of f32 between two ranks.
Json time_between(World& world, bool takes_part, const RunConfig& config) {
  Json sums = Json::array();
  on_ranks(world, takes_part, [&](World& pair) {
    const Assembly assembly = assemble(pair, config, Log(pair.rank(), pair.host(), true));
    Communicator& communicator = *assembly.communicator;
    const auto stream = assembly.backend->make_stream();
    const Buffer memory = communicator.allocate(static_cast<std::size_t>(kLinkBytes.back()));
    const auto sum = [&](std::int64_t bytes) {
      communicator.all_reduce(memory.view(Shape{bytes / 4}, ElementType::f32), *stream);
      communicator.finish(*stream);
      stream->synchronize();
    };
    std::vector<SumTrial> trials;
    for (const std::int64_t bytes : kLinkBytes) {
      trials.push_back({.once = [&, bytes] { sum(bytes); }, .align = [&] { sum(4); }, .at_once = sums_at_once(bytes)});
    }
    const auto seconds = time_in_rounds(pair, trials, kLinkRepeats);
    for (std::size_t i = 0; i < trials.size(); ++i) {
      sums.push_back({kLinkBytes[i], quartiles_of(seconds[i]).median});
    }
  });
  return sums;
}

// Ascending.
std::set<std::int64_t> images_a_rank(const Invocation& invocation) {
  const std::int64_t batch = invocation.run.batch_size;
  std::set<std::int64_t> images{batch};
  if (invocation.scaling.mode == ScalingMode::weak) return images;
  for (const std::int64_t times : kSmallerBatches) images.insert(std::max<std::int64_t>(1, batch / times));
  return images;
}

// Adds the medians over the ranks that computed.
void add_profile(World& world, const SoloRun& solo, std::int64_t images, MeasuredCompute& measured) {
  std::vector<StepTimes> by_rank;
  for (const auto& figures :
       all_gather_doubles(world, solo.steps.empty() ? std::vector<double>{} : packed(median_of(solo.steps)))) {
    if (!figures.empty()) by_rank.push_back(unpacked(figures));
  }
  measured.profiles.push_back({.images = images, .times = median_of(by_rank)});
  std::vector<double> seconds;
  for (const StepTimes& step : solo.steps) seconds.push_back(step.compute_seconds());
  for (const auto& theirs : all_gather_doubles(world, seconds)) {
    for (const double its : theirs) {
      measured.ratios.push_back(its / measured.profiles.back().times.compute_seconds());
    }
  }
  measured.bucket_ends = solo.bucket_ends;
}

RunConfig config_alone(const Invocation& invocation, std::int64_t images, int threads) {
  RunConfig config = config_for_ranks(invocation, 1, images, threads);
  config.record_steps = false;  // a CUDA graph does not show when its layers are done
  return config;
}

// Seconds on the straight line through the times of two numbers of images. Below both, and with a single one, at least
// proportional to the images; above both, at least the larger measurement.
struct Line {
  double low = 0;
  double high = 0;
  double images = 0;

  double operator()(double at_low, double at_high) const {
    const double in_proportion = at_low * images / low;
    if (low == high) return in_proportion;
    const double straight = std::lerp(at_low, at_high, (images - low) / (high - low));
    if (images < low) return std::max(straight, in_proportion);
    return images > high ? std::max(straight, at_high) : straight;
  }
};

Json as_json(const ComputeProfile& profile) {
  Json stretches = Json::array();
  for (const StepTimes::Interval& interval : profile.times.compute) {
    stretches.push_back({interval.seconds, interval.final_elements});
  }
  return {{"images", profile.images},
          {"input", profile.times.input},
          {"update", profile.times.update},
          {"stretches", stretches}};
}

}  // namespace

RunConfig config_for_ranks(const Invocation& invocation, int ranks, std::int64_t batch, int threads) {
  const TimedSteps& steps = invocation.steps;
  RunConfig config = config_for_steps(invocation, steps.warmup + steps.timed + kMaxStepsByPhase);
  config.batch_size = batch;
  config.parts = ranks;
  if (config.threads == 0) config.threads = threads;
  config.exchange = Exchange::ring;
  // Every step has a whole batch, even one larger than the data.
  if (!invocation.run.given.contains("last-batch")) config.last_batch = LastBatch::rollover;
  return config;
}

StepTimes times_for(const std::vector<ComputeProfile>& profiles, double images) {
  std::size_t above = std::min<std::size_t>(1, profiles.size() - 1);
  while (above + 1 < profiles.size() && static_cast<double>(profiles[above].images) < images) ++above;
  const ComputeProfile& high = profiles[above];
  const ComputeProfile& low = profiles[above - std::min<std::size_t>(1, above)];
  const Line line{.low = static_cast<double>(low.images), .high = static_cast<double>(high.images), .images = images};
  StepTimes times;
  times.input = line(low.times.input, high.times.input);
  for (std::size_t i = 0; i < low.times.compute.size(); ++i) {
    times.compute.push_back({.seconds = line(low.times.compute[i].seconds, high.times.compute[i].seconds),
                             .final_elements = low.times.compute[i].final_elements});
  }
  times.update = low.times.update;  // does not depend on the images
  return times;
}

MeasuredCompute measure_compute(World& world, const Invocation& invocation, int threads) {
  MeasuredCompute measured;
  for (const std::int64_t images : images_a_rank(invocation)) {
    const RunConfig config = config_alone(invocation, images, threads);
    SoloRun solo;
    if (invocation.scaling.paced) {
      on_ranks(world, world.rank() < 1, [&](World& alone) { solo = compute_alone(alone, config, invocation.steps); });
    } else {
      const auto alone = world.split(world.rank());
      run_or_throw_on_all(world, [&] { solo = compute_alone(*alone, config, invocation.steps); });
    }
    add_profile(world, solo, images, measured);
  }
  std::ranges::sort(measured.ratios);
  return measured;
}

Json measure_forecast_inputs(World& world, const RankOrder& order, const Invocation& invocation, int threads,
                             const MeasuredCompute& compute) {
  RunConfig config = config_alone(invocation, invocation.run.batch_size, threads);
  double crowding = 1;
  if (!invocation.scaling.paced) {
    SoloRun first;
    on_ranks(world, world.rank() < 1, [&](World& alone) { first = compute_alone(alone, config, invocation.steps); });
    if (world.rank() == 0) {
      crowding = compute.profiles.back().times.compute_seconds() / median_of(first.steps).compute_seconds();
    }
  }
  config.parts = 2;
  const auto sums_between = [&](int one, int other) {
    const bool takes_part = order.position() == one || order.position() == other;
    return Json{{"sums_of_two", time_between(world, takes_part, config)}};
  };
  const Json within = order.ranks_of(1) > 1 ? sums_between(0, 1) : Json();
  const Json between = order.nodes() > 1 ? sums_between(0, order.ranks_of(1)) : Json();
  Json profiles = Json::array();
  for (const ComputeProfile& profile : compute.profiles) profiles.push_back(as_json(profile));
  return {{"source", fmt::format("measured here, hosts: {}; ranks: {}", order.nodes(), order.ranks())},
          {"model", invocation.run.model},
          {"ranks_per_node", order.ranks_of(1)},
          {"overlaps", true},
          {"bucket_ends", compute.bucket_ends},
          {"compute", profiles},
          {"crowding", crowding},
          {"jitter", invocation.scaling.paced ? std::vector{1.0} : compute.ratios},
          {"within", within},
          {"between", between}};
}

}  // namespace tutti
