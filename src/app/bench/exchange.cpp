#include "bench.hpp"
#include "measured_steps.hpp"
#include "processors.hpp"
#include "run_config.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

struct Way {
  const char* name;
  Exchange exchange;
  bool shards_optimizer = false;
};
constexpr std::array kWays{Way{"ring", Exchange::ring}, Way{"exact", Exchange::exact},
                           Way{"exact, sharded", Exchange::exact, true}, Way{"sharded", Exchange::sharded},
                           Way{"central", Exchange::central}};

// The cost of exchange and update of a step alone, a line of the table. Bytes are the maximum over the ranks.
struct Point {
  std::string way;
  int ranks = 1;
  bool oversubscribed = false;
  Quartiles step{};
  double sent_bytes = 0;  // per step
  double exchange_bytes = 0;
  double optimizer_bytes = 0;
};

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
  const Tensor gradients = run.trainer->replica().gradients();
  std::vector<float> values(static_cast<std::size_t>(gradients.elements()));
  const auto stream = run.assembly.backend->make_stream();
  run.assembly.backend->copy(*stream, host_tensor(values), gradients);
  stream->synchronize();
  return values;
}

Point measure(World& world, const RunConfig& config, const TimedSteps& steps, std::vector<float>& gradients) {
  PreparedTraining run(world, config);
  Backend& backend = *run.assembly.backend;
  const Tensor values = host_tensor(gradients);
  const Buffer memory = backend.allocate(values.bytes());
  const Tensor on_device = memory.view(values.shape, values.type);
  const auto stream = backend.make_stream();
  backend.copy(*stream, on_device, values);
  stream->synchronize();
  const auto step = [&] { exchange_step(*run.trainer, on_device); };
  time_steps(world, *run.trainer, {.warmup = steps.warmup, .timed = 0}, step);
  const std::uint64_t sent_before = run.assembly.communicator->bytes_sent();
  const auto seconds = time_steps(world, *run.trainer, steps_for(backend, {.warmup = 0, .timed = steps.timed}), step);
  const auto sent = static_cast<double>(run.assembly.communicator->bytes_sent() - sent_before);
  const Replica& replica = run.trainer->replica();
  const auto largest =
      max_over_ranks(world, {sent / static_cast<double>(steps.timed), static_cast<double>(replica.exchange_bytes()),
                             static_cast<double>(replica.optimizer_bytes())});
  return {.way = "",
          .ranks = world.size(),
          .oversubscribed = config.threads * world.local_size() > run.assembly.cores.usable,
          .step = quartiles_of(seconds),
          .sent_bytes = largest[0],
          .exchange_bytes = largest[1],
          .optimizer_bytes = largest[2]};
}

void print(const Point& point) {
  fmt::print("{:>5} {:>14} {:>10.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}{}\n", point.ranks, point.way,
             point.step.median * 1e3, point.step.low * 1e3, point.step.high * 1e3, point.sent_bytes / 0x1p20,
             point.exchange_bytes / 0x1p20, point.optimizer_bytes / 0x1p20,
             point.oversubscribed ? "  oversubscribed" : "");
  std::fflush(stdout);
}

Json as_json(const Point& point) {
  return {{"exchange", point.way},
          {"ranks", point.ranks},
          {"seconds_median", point.step.median},
          {"seconds_low_quartile", point.step.low},
          {"seconds_high_quartile", point.step.high},
          {"busiest_rank_sent_bytes", point.sent_bytes},
          {"exchange_bytes", point.exchange_bytes},
          {"optimizer_bytes", point.optimizer_bytes},
          {"oversubscribed", point.oversubscribed}};
}

}  // namespace

ExitStatus bench_exchange(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  const TimedSteps& steps = invocation.steps;
  const Cores cores = count_cores(world);
  std::vector<int> counts;
  run_or_throw_on_all(world, [&] { counts = parse_counts("ranks", invocation.ranks, world.size()); });
  RunConfig config = config_for_steps(invocation, steps.warmup + steps.timed + 1);
  if (config.threads == 0) config.threads = std::max(1, cores.usable / world.local_size());
  if (world.rank() == 0) {
    fmt::print("{:>5} {:>14} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "ranks", "exchange", "median ms", "25 % ms",
               "75 % ms", "sent MiB", "sums MiB", "state MiB");
  }
  Json results = Json::array();
  for (const int count : counts) {
    on_ranks(world, world.rank() < count, [&](World& working) {
      config.parts = count;
      config.exchange = Exchange::ring;
      config.shard_optimizer = false;
      std::vector<float> gradients = real_gradients(working, config);
      for (const Way& way : kWays) {
        config.exchange = way.exchange;
        config.shard_optimizer = way.shards_optimizer;
        Point point = measure(working, config, steps, gradients);
        point.way = way.name;
        if (world.rank() != 0) continue;
        print(point);
        results.push_back(as_json(point));
      }
    });
  }
  write_json(world, invocation.json,
             Json{{"bench", "exchange"}, {"model", invocation.run.model}, {"results", results}});
  return ExitStatus::done;
}

}  // namespace tutti
