#include "bench.hpp"
#include "exchange_cost.hpp"
#include "option_values.hpp"
#include "processors.hpp"

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

// One line of the table.
struct Point {
  std::string way;
  int ranks = 1;
  bool oversubscribed = false;
  ExchangeCost cost;
};

// What a first step of the model gave, on the host.
std::vector<float> real_gradients(World& world, const RunConfig& config) {
  Readied run(world, config);
  end_together(world, [&] {
    run.trainer->step();
    run.trainer->settle();
  });
  return read_gradients(run);
}

Point measure(World& world, const RunConfig& config, const TimedSteps& steps, std::vector<float>& gradients) {
  Readied run(world, config);
  return {.way = "",
          .ranks = world.size(),
          .oversubscribed = config.threads * world.local_size() > run.assembly.cores.usable,
          .cost = measure_exchange(world, run, steps, gradients)};
}

void tell(const Point& point) {
  fmt::print("{:>5} {:>14} {:>10.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}{}\n", point.ranks, point.way,
             point.cost.step.median * 1e3, point.cost.step.low * 1e3, point.cost.step.high * 1e3,
             point.cost.sent_bytes / 0x1p20, point.cost.exchange_bytes / 0x1p20, point.cost.optimizer_bytes / 0x1p20,
             point.oversubscribed ? "  oversubscribed" : "");
  std::fflush(stdout);
}

Json as_json(const Point& point) {
  return {{"exchange", point.way},
          {"ranks", point.ranks},
          {"seconds_median", point.cost.step.median},
          {"seconds_low_quartile", point.cost.step.low},
          {"seconds_high_quartile", point.cost.step.high},
          {"busiest_rank_sent_bytes", point.cost.sent_bytes},
          {"exchange_bytes", point.cost.exchange_bytes},
          {"optimizer_bytes", point.cost.optimizer_bytes},
          {"oversubscribed", point.oversubscribed}};
}

}  // namespace

ExitStatus bench_exchange(World& world, const Invocation& invocation) {
  const TimedSteps& steps = invocation.steps;
  const Cores cores = count_cores(world);
  std::vector<int> counts;
  run_agreed(world, [&] { counts = parse_counts("ranks", invocation.ranks, world.size()); });
  RunConfig config = config_for_steps(invocation, steps.warmup + steps.timed + 1);
  if (config.threads == 0) config.threads = std::max(1, cores.usable / world.local_size());
  if (world.rank() == 0) {
    fmt::print("{:>5} {:>14} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "ranks", "exchange", "median ms", "25 % ms",
               "75 % ms", "sent MiB", "sums MiB", "state MiB");
  }
  Json results = Json::array();
  for (const int count : counts) {
    on_first_ranks(world, count, [&](World& working) {
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
        tell(point);
        results.push_back(as_json(point));
      }
    });
  }
  write_bench_json(world, invocation.json,
                   Json{{"bench", "exchange"}, {"model", invocation.run.model}, {"results", results}});
  return ExitStatus::done;
}

}  // namespace tutti
