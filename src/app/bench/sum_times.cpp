#include "sum_times.hpp"

#include "tutti/backend/backend.hpp"
#include "tutti/base/stopwatch.hpp"
#include "tutti/comm/communicator.hpp"

#include "bench.hpp"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kWarmUps = 3;

double seconds_of(const SumTrial& trial) {
  trial.meet();
  const Stopwatch watch;
  for (std::int64_t i = 0; i < trial.at_once; ++i) trial.once();
  return watch.seconds() / static_cast<double>(trial.at_once);
}

}  // namespace

std::int64_t sums_at_once(std::int64_t bytes) {
  return std::clamp((std::int64_t{1} << 18) / std::max<std::int64_t>(bytes, 1), std::int64_t{1}, std::int64_t{20});
}

std::vector<std::vector<double>> time_in_rounds(World& world, const std::vector<SumTrial>& trials,
                                                std::int64_t rounds) {
  std::vector<std::vector<double>> seconds(trials.size());
  for (std::int64_t round = -kWarmUps; round < rounds; ++round) {
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const double mine = seconds_of(trials[i]);
      if (round >= 0) seconds[i].push_back(mine);
    }
  }
  for (auto& of_trial : seconds) of_trial = greatest_of_ranks(world, std::move(of_trial));
  return seconds;
}

std::vector<TimedSum> time_all_reduce(World& world, const Summing& summing, const std::vector<std::int64_t>& bytes,
                                      std::int64_t repeats) {
  Communicator& communicator = summing.communicator;
  const auto stream = summing.backend.make_stream();
  const std::int64_t longest = bytes.empty() ? 0 : std::ranges::max(bytes);
  const Buffer memory = communicator.allocate(static_cast<std::size_t>(longest));
  const auto sum = [&](std::int64_t of_bytes) {
    communicator.all_reduce_sum(memory.view(Shape{of_bytes / 4}, ElementType::f32), *stream);
    communicator.finish(*stream);
    stream->synchronize();
  };
  std::vector<SumTrial> trials;
  for (const std::int64_t size : bytes) {
    trials.push_back(
        {.algorithm = "", .once = [&, size] { sum(size); }, .meet = [&] { sum(4); }, .at_once = sums_at_once(size)});
  }
  const auto seconds = time_in_rounds(world, trials, repeats);
  std::vector<TimedSum> timed;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    timed.push_back({.bytes = bytes[i], .seconds = quartiles_of(seconds[i]).median});
  }
  return timed;
}

}  // namespace tutti
