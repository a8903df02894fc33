#include "cores.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>

namespace tutti {
namespace {

// One character per core of the host: '1' where this process may run.
std::string allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "1";
  std::string allowed(CPU_SETSIZE, '0');
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) allowed[static_cast<std::size_t>(core)] = '1';
  }
  return allowed;
}

}  // namespace

bool has_room_for(const Cores& cores, const World& world, std::int64_t threads_a_rank) {
  return threads_a_rank * world.local_size() <= cores.usable;
}

Cores count_cores(World& world) {
  const std::string mine = allowed_cores();
  std::string together(mine.size(), '0');
  for (const std::string& entry : all_gather_text(world, world.host() + "\n" + mine)) {
    const std::size_t end_of_host = entry.find('\n');
    if (entry.substr(0, end_of_host) != world.host()) continue;
    const std::string cores = entry.substr(end_of_host + 1);
    for (std::size_t i = 0; i < std::min(cores.size(), together.size()); ++i) {
      if (cores[i] == '1') together[i] = '1';
    }
  }
  const auto count = [](const std::string& cores) {
    return std::max(1, static_cast<int>(std::ranges::count(cores, '1')));
  };
  return {.mine = count(mine),
          .usable = count(together),
          .present = std::max(1, static_cast<int>(std::thread::hardware_concurrency()))};
}

int budget_readers(const World& world, const Cores& cores, std::int64_t compute_threads) {
  constexpr std::int64_t kMost = 4;
  const std::int64_t spare = cores.usable - compute_threads * world.local_size();
  return static_cast<int>(std::clamp<std::int64_t>(spare / world.local_size(), 1, kMost));
}

int fewest_cores_per_rank(World& world, const Cores& cores) {
  int fewest = std::max(1, cores.usable / world.local_size());
  for (const std::string& theirs : all_gather_text(world, fmt::format("{}", fewest))) {
    fewest = std::min(fewest, std::stoi(theirs));
  }
  return fewest;
}

}  // namespace tutti
