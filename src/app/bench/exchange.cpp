#include "bench.hpp"
#include "measured_steps.hpp"
#include "processors.hpp"
#include "run_config.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <string>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kWays{ExchangeOptions{.kind = Exchange::ring},
                           ExchangeOptions{.kind = Exchange::ring, .wire = Wire::bf16},
                           ExchangeOptions{.kind = Exchange::exact},
                           ExchangeOptions{.kind = Exchange::exact, .wire = Wire::int64},
                           ExchangeOptions{.kind = Exchange::exact, .shard_optimizer = true},
                           ExchangeOptions{.kind = Exchange::sharded},
                           ExchangeOptions{.kind = Exchange::central}};

void set_exchange(RunConfig& config, const ExchangeOptions& exchange) {
  config.exchange = exchange.kind;
  config.trainer.exchange = exchange;
}

Tensor host_tensor(std::vector<float>& values) {
  return {.data = values.data(), .shape = Shape{static_cast<std::int64_t>(values.size())}};
}

// The gradients of the first step of the model, in host memory.
std::vector<float> real_gradients(World& world, const RunConfig& config) {
  PreparedTraining run(world, config);
  run_then_barrier(world, [&] {
    run.trainer->step();
    run.trainer->synchronize();
  });
  const Tensor gradients = run.trainer->replica().state().gradients();
  std::vector<float> values(static_cast<std::size_t>(gradients.elements()));
  const auto stream = run.assembly.processor.backend->make_stream();
  run.assembly.processor.backend->copy(*stream, host_tensor(values), gradients);
  stream->synchronize();
  return values;
}

// Measures and prints the cost of exchange and update of a step alone. Bytes are the maximum over the ranks.
Json measure(World& world, const RunConfig& config, const TimedSteps& steps, std::vector<float>& gradients) {
  PreparedTraining run(world, config);
  Backend& backend = *run.assembly.processor.backend;
  const Communicator& communicator = *run.assembly.communicator;
  const Tensor values = host_tensor(gradients);
  const Buffer memory = backend.allocate(values.bytes());
  const Tensor on_device = memory.view(values.shape, values.type);
  const auto stream = backend.make_stream();
  backend.copy(*stream, on_device, values);
  stream->synchronize();
  const auto step = [&] { exchange_step(*run.trainer, on_device); };
  time_steps(world, *run.trainer, {.warmup = steps.warmup, .timed = 0}, step);
  const std::uint64_t sent_before = communicator.bytes_sent();
  const Quartiles time =
      quartiles_of(time_steps(world, *run.trainer, steps_for(backend, {.warmup = 0, .timed = steps.timed}), step));
  const auto sent = static_cast<double>(communicator.bytes_sent() - sent_before);
  const ReplicaState& state = run.trainer->replica().state();
  const auto bytes =
      max_over_ranks(world, {sent / static_cast<double>(steps.timed), static_cast<double>(state.exchange_bytes()),
                             static_cast<double>(state.optimizer_bytes())});
  const std::optional<Wire> wire = config.trainer.exchange.wire;
  const std::string way =
      fmt::format("{}{}{}", name_of(*config.exchange), config.trainer.exchange.shard_optimizer ? ", sharded" : "",
                  wire ? fmt::format(", {}", name_of(*wire)) : "");
  const bool oversubscribed = !has_room_for(run.assembly.cores, world, config.trainer.threads);
  if (world.rank() == 0) {
    fmt::print("{:>5} {:>14} {:>10.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}{}\n", world.size(), way,
               time.median * 1e3, time.low * 1e3, time.high * 1e3, mebi(bytes[0]), mebi(bytes[1]), mebi(bytes[2]),
               oversubscribed ? "  oversubscribed" : "");
    std::fflush(stdout);
  }
  return {{"exchange", way},
          {"ranks", world.size()},
          {"seconds_median", time.median},
          {"seconds_low_quartile", time.low},
          {"seconds_high_quartile", time.high},
          {"busiest_rank_sent_bytes", bytes[0]},
          {"exchange_bytes", bytes[1]},
          {"optimizer_bytes", bytes[2]},
          {"oversubscribed", oversubscribed}};
}

}  // namespace

ExitStatus bench_exchange(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  const TimedSteps& steps = invocation.steps;
  const Cores cores = count_cores(world);
  std::vector<int> counts;
  run_or_throw_on_all(world, [&] { counts = parse_counts("ranks", invocation.ranks, world.size()); });
  RunConfig config = config_for_steps(invocation, steps.warmup + steps.timed + 1);
  if (config.trainer.threads == 0) config.trainer.threads = fewest_cores_per_rank(world, cores);
  if (world.rank() == 0) {
    fmt::print("{:>5} {:>14} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "ranks", "exchange", "median ms", "25 % ms",
               "75 % ms", "sent MiB", "sums MiB", "state MiB");
  }
  Json results = Json::array();
  for (const int count : counts) {
    on_ranks(world, world.rank() < count, [&](World& working) {
      config.trainer.num_parts = count;
      set_exchange(config, kWays.front());
      std::vector<float> gradients = real_gradients(working, config);
      for (const ExchangeOptions& way : kWays) {
        set_exchange(config, way);
        results.push_back(measure(working, config, steps, gradients));
      }
    });
  }
  write_json(world, invocation.json,
             Json{{"bench", "exchange"}, {"model", invocation.run.model}, {"results", results}});
  return ExitStatus::done;
}

}  // namespace tutti
