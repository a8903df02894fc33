#include "tutti/base/error.hpp"
#include "tutti/base/stopwatch.hpp"

#include "bench.hpp"
#include "layer_report.hpp"
#include "readied.hpp"
#include "run_record.hpp"
#include "several.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

void refuse_several_ranks(const World& world) {
  if (world.size() == 1) return;
  throw Error(
      ErrorSource::usage,
      fmt::format("bench layers looks at one process, not at {} ranks: start it without a launcher", world.size()))
      .on_all_ranks();
}

// A GPU's thread has only enqueued what it has passed.
void refuse_gpu(const Backend& backend) {
  if (backend.memory_space() == MemorySpace::host) return;
  throw Error(ErrorSource::usage, "bench layers looks at layers on the CPU: give --device cpu").on_all_ranks();
}

// Whole batches alone, unless the user wants others.
RunConfig config_for_layers(const Invocation& invocation) {
  const TimedSteps& steps = invocation.steps;
  RunConfig config = config_for_steps(invocation, steps.warmup + 2 * steps.timed);
  if (!invocation.given.contains("last-batch")) config.last_batch = "rollover";
  return config;
}

std::vector<FloorLayer> floor_layers(const Network& network, std::int64_t samples) {
  std::vector<FloorLayer> layers;
  for (const NetworkLayer& layer : network.layers()) {
    layers.push_back({layer.spec, layer.input.batch_of(samples), layer.from != kImage});
  }
  return layers;
}

// The step and the library take turns. What the library has left in the caches, and the batch that was made ready
// meanwhile, are another step's.
std::vector<LayersRound> measure(Trainer& trainer, LayerClock& clock, LibraryFloor& floor, const TimedSteps& steps) {
  const auto step = [&] {
    clock.take();
    const Stopwatch watch;
    trainer.step();
    trainer.settle();
    ProfiledStep seen = clock.take();
    seen.step = watch.seconds();
    return seen;
  };
  for (std::int64_t i = 0; i < steps.warmup; ++i) step();
  std::vector<LayersRound> rounds;
  for (std::int64_t i = 0; i < steps.timed; ++i) {
    step();
    LayersRound& round = rounds.emplace_back(LayersRound{.step = step(), .library = {}, .rates = {}});
    round.library = floor.time_primitives();
    round.rates = floor.measure_processor();
  }
  return rounds;
}

Json as_json(const LayersReport& report, const RunConfig& config, const std::string& libraries) {
  Json json{{"bench", "layers"},
            {"libraries", libraries},
            {"model", config.model},
            {"data", config.data},
            {"precision", config.precision},
            {"batch", config.batch_size},
            {"threads", config.threads},
            {"tiled_convolutions", config.tiled_convolutions}};
  json.update(json_of(report));
  return json;
}

}  // namespace

ExitStatus bench_layers(World& world, const Invocation& invocation) {
  refuse_several_ranks(world);
  Whereabouts whereabouts;
  Readied run(world, config_for_layers(invocation), &whereabouts);
  refuse_gpu(*run.assembly.backend);
  const RunConfig& config = run.assembly.config;
  const Network& network = *run.assembly.network;
  const MeasuredNetwork measured{network, config.batch_size, parse_precision(config.precision)};
  LayerClock clock(whereabouts);
  LibraryFloor floor(measured.precision, floor_layers(network, measured.samples));
  const LayersReport report = report_of(measured, measure(*run.trainer, clock, floor, invocation.steps));
  const std::string libraries = versions_text(run.assembly, world);
  fmt::print("{}\n{} {}, batch {}, {}, data {}\n{}", libraries, config.model, config.precision, config.batch_size,
             several(config.threads, "thread"), config.data, table_of(report));
  write_bench_json(world, invocation.json, as_json(report, config, libraries).dump(2) + "\n");
  return ExitStatus::done;
}

}  // namespace tutti
