#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/stopwatch.hpp"
#include "tutti/comm/communicator.hpp"

#include "bench.hpp"
#include "resolve_options.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kWarmUps = 3;

struct Algorithm {
  const char* name;
  std::function<std::unique_ptr<Communicator>(World&)> make;
};

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> all{
      {"ring", [](World& world) { return make_mpi_ring_communicator(world, {.helper_thread = false}); }},
      {"mpi", make_mpi_library_communicator}};
  return all;
}

// Seconds of each repetition as the slowest rank saw it.
std::vector<double> time_sums(World& world, Communicator& communicator, Stream& stream, const Tensor& values,
                              std::int64_t repeats) {
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < kWarmUps + repeats; ++i) {
    world.barrier();
    const Stopwatch watch;
    communicator.all_reduce_sum(values, stream);
    communicator.finish(stream);
    const double mine = watch.seconds();
    if (i >= kWarmUps) seconds.push_back(mine);
  }
  return greatest_of_ranks(world, std::move(seconds));
}

void bench_ranks(World& world, const AllreduceBench& bench, Json& results) {
  const auto backend = make_cpu_backend();
  const auto stream = backend->make_stream();
  const int ranks = world.size();
  for (std::int64_t bytes = bench.min_bytes; bytes <= bench.max_bytes; bytes *= 4) {
    const std::int64_t elements = std::max<std::int64_t>(1, bytes / 4);
    for (const Algorithm& algorithm : algorithms()) {
      const auto communicator = algorithm.make(world);
      const Buffer memory = communicator->allocate(static_cast<std::size_t>(elements) * 4);
      const Tensor values = memory.view(Shape{elements}, ElementType::f32);
      const Spread time = spread_of(time_sums(world, *communicator, *stream, values, bench.repeats));
      const double bus = 2.0 * (ranks - 1) / ranks * static_cast<double>(elements) * 4 / time.median / 1e9;
      if (world.rank() == 0) {
        fmt::print("{:>5} {:>12} {:>9} {:>12.1f} {:>12.1f} {:>12.1f} {:>10.3f}\n", ranks, elements * 4, algorithm.name,
                   time.median * 1e6, time.low * 1e6, time.high * 1e6, bus);
        results.push_back({{"ranks", ranks},
                           {"bytes", elements * 4},
                           {"algorithm", algorithm.name},
                           {"seconds_median", time.median},
                           {"seconds_low_quartile", time.low},
                           {"seconds_high_quartile", time.high},
                           {"bus_gigabytes_per_second", bus}});
      }
      world.barrier();
    }
  }
}

}  // namespace

ExitStatus bench_allreduce(World& world, const Invocation& invocation) {
  std::vector<int> counts;
  run_agreed(world, [&] {
    if (!started_by_launcher()) {
      throw Error(ErrorSource::usage,
                  "bench allreduce measures sums over ranks: mpirun -np 4 ./trainer bench allreduce");
    }
    counts = parse_rank_counts(invocation.ranks, world.size());
  });
  if (world.rank() == 0) {
    fmt::print("{:>5} {:>12} {:>9} {:>12} {:>12} {:>12} {:>10}\n", "ranks", "bytes", "by", "median us", "25 % us",
               "75 % us", "bus GB/s");
  }
  Json results = Json::array();
  for (const int count : counts) {
    if (count == 1 && counts.size() > 1) continue;
    const auto part_of_world = world.split(world.rank() < count ? 0 : -1);
    if (part_of_world) bench_ranks(*part_of_world, invocation.allreduce, results);
    world.barrier();
  }
  write_bench_json(world, invocation.json, Json{{"bench", "allreduce"}, {"results", results}}.dump(2) + "\n");
  return ExitStatus::done;
}

}  // namespace tutti
