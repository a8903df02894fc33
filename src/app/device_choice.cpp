#include "device_choice.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace tutti {
namespace {

Error refusal(const std::string& text) { return Error(ErrorSource::usage, text).on_all_ranks(); }

bool see_the_same(const DeviceClaim& one, const DeviceClaim& other) {
  return std::ranges::equal(one.visible, other.visible, {}, &CudaDevice::uuid, &CudaDevice::uuid);
}

class Chooser {
 public:
  explicit Chooser(std::span<const DeviceClaim> claims) : claims_(claims), choices_(claims.size()) {}

  std::vector<DeviceChoice> choose() {
    const std::string reason = reason_auto_uses_cpus();
    if (!reason.empty()) {
      for (DeviceChoice& choice : choices_) choice.note = "computing on CPUs: " + reason;
    }
    for (std::size_t rank = 0; rank < claims_.size(); ++rank) {
      if (wants(rank, Device::cuda) || (wants(rank, Device::automatic) && reason.empty())) assign(rank);
    }
    if (!claims_[0].request.share) refuse_shared_devices();
    if (!claims_[0].request.mixed) refuse_mixture();
    return choices_;
  }

 private:
  bool wants(std::size_t rank, Device device) const { return claims_[rank].request.device == device; }
  std::string name_of(std::size_t rank) const { return fmt::format("rank {} on {}", rank, claims_[rank].host); }

  // The index of a rank among those of its host that see the same devices and may use them, and the number of those.
  struct Turn {
    std::size_t index = 0;
    std::size_t ranks = 0;
  };
  Turn turn_of(std::size_t rank) const {
    Turn turn;
    for (std::size_t other = 0; other < claims_.size(); ++other) {
      const DeviceClaim& claim = claims_[other];
      if (wants(other, Device::cpu) || claim.host != claims_[rank].host || !see_the_same(claim, claims_[rank]))
        continue;
      turn.index += other < rank ? 1U : 0U;
      ++turn.ranks;
    }
    return turn;
  }

  // Why a rank cannot have a GPU; empty if it can.
  std::string reason_without_gpu(std::size_t rank) const {
    const DeviceClaim& claim = claims_[rank];
    if (claim.visible.empty()) return fmt::format("{} has no GPU: {}", name_of(rank), claim.unavailable_reason);
    const Turn turn = turn_of(rank);
    if (claims_[0].request.share || turn.index < claim.visible.size()) return {};
    return fmt::format("{} ranks on {} see the same {} GPU{}", turn.ranks, claim.host, claim.visible.size(),
                       claim.visible.size() == 1 ? "" : "s");
  }

  // The reason of the first rank with --device auto that cannot have a GPU; empty if all can.
  std::string reason_auto_uses_cpus() const {
    for (std::size_t rank = 0; rank < claims_.size(); ++rank) {
      if (!wants(rank, Device::automatic)) continue;
      if (std::string reason = reason_without_gpu(rank); !reason.empty()) return reason;
    }
    return {};
  }

  void assign(std::size_t rank) {
    if (const std::string reason = reason_without_gpu(rank); !reason.empty()) {
      throw refusal(claims_[rank].visible.empty()
                        ? reason + "; choose --device cpu, or auto"
                        : reason + ": start as many ranks as GPUs, or for tests let them share with --share-device");
    }
    choices_[rank].device = static_cast<int>(turn_of(rank).index % claims_[rank].visible.size());
  }

  const CudaDevice& chosen(std::size_t rank) const {
    return claims_[rank].visible[static_cast<std::size_t>(*choices_[rank].device)];
  }

  void refuse_shared_devices() const {
    for (std::size_t rank = 0; rank < claims_.size(); ++rank) {
      for (std::size_t other = 0; other < rank; ++other) {
        if (!choices_[rank].device || !choices_[other].device || chosen(rank).uuid != chosen(other).uuid) continue;
        throw refusal(fmt::format(
            "{} and {} would both use {} ({}): let each rank see its own GPU (srun --gpus-per-task=1, or one "
            "CUDA_VISIBLE_DEVICES for all that names as many as there are ranks), or for tests share it with "
            "--share-device",
            name_of(other), name_of(rank), chosen(rank).uuid, chosen(rank).name));
      }
    }
  }

  void refuse_mixture() const {
    const auto has_gpu = [](const DeviceChoice& choice) { return choice.device.has_value(); };
    const auto with = std::ranges::find_if(choices_, has_gpu);
    const auto without = std::ranges::find_if_not(choices_, has_gpu);
    if (with == choices_.end() || without == choices_.end()) return;
    throw refusal(fmt::format("{} computes on a GPU and {} does not: use --comm mpi for that",
                              name_of(static_cast<std::size_t>(with - choices_.begin())),
                              name_of(static_cast<std::size_t>(without - choices_.begin()))));
  }

  std::span<const DeviceClaim> claims_;
  std::vector<DeviceChoice> choices_;
};

// One line each for the request, the host and the reason for no device; then UUID and name of each device.
std::string text_of(const DeviceClaim& claim) {
  std::string why = claim.unavailable_reason;
  std::ranges::replace(why, '\n', ' ');
  std::string text = fmt::format("{}\n{:d} {:d}\n{}\n{}\n", name_of(claim.request.device), claim.request.share,
                                 claim.request.mixed, claim.host, why);
  for (const CudaDevice& device : claim.visible) text += fmt::format("{}\n{}\n", device.uuid, device.name);
  return text;
}

DeviceClaim claim_of(const std::string& text) {
  std::istringstream lines(text);
  DeviceClaim claim;
  std::string kind;
  std::getline(lines, kind);
  claim.request.device = value_named<Device>(kind).value();
  lines >> claim.request.share >> claim.request.mixed >> std::ws;
  std::getline(lines, claim.host);
  std::getline(lines, claim.unavailable_reason);
  for (CudaDevice device; std::getline(lines, device.uuid) && std::getline(lines, device.name);) {
    claim.visible.push_back(device);
  }
  return claim;
}

std::string read_cache(const std::string& path) {
  std::error_code unseen;
  if (!std::filesystem::is_regular_file(path, unseen)) return {};
  const auto bytes = read_file_bytes(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The file may have the choices of more than one kind of processor.
void add_to_cache(const std::string& path, const std::vector<std::string>& chosen) {
  const std::string before = read_cache(path);
  std::string after = before;
  for (const std::string& lines : chosen) {
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
      if (after.find(line + "\n") == std::string::npos) after += line + "\n";
    }
  }
  if (after != before) write_atomically(path, std::as_bytes(std::span(after)));
}

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

std::vector<DeviceChoice> choose_devices(std::span<const DeviceClaim> claims) { return Chooser(claims).choose(); }

DeviceChoice choose_device(World& world, const CudaInventory& inventory, const DeviceRequest& request) {
  const DeviceClaim mine{.request = request,
                         .host = world.host(),
                         .visible = inventory.devices,
                         .unavailable_reason = inventory.unavailable_reason};
  std::vector<DeviceClaim> claims;
  for (const std::string& text : all_gather_text(world, text_of(mine))) claims.push_back(claim_of(text));
  return choose_devices(claims)[static_cast<std::size_t>(world.rank())];
}

void adopt_known_choices(World& world, const RunConfig& config, const std::string& of_checkpoint, Backend& backend,
                         const Log& log) {
  run_or_throw_on_all(world, [&] {
    if (!of_checkpoint.empty()) {
      if (backend.load_algorithm_cache(of_checkpoint)) return;
      log.note("the checkpoint's choice of algorithms is for another kind of GPU or library: bits will differ");
    }
    static_cast<void>(backend.load_algorithm_cache(read_cache(config.plan_cache)));
  });
}

void build_with_shared_choices(World& world, const RunConfig& config, Backend& backend,
                               const std::function<void()>& build) {
  const bool measures = backend.memory_space() != MemorySpace::host;
  const auto kinds = all_gather_text(world, measures ? backend.description() : "");
  if (std::ranges::all_of(kinds, [](const std::string& kind) { return kind.empty(); })) {
    return run_or_throw_on_all(world, build);
  }
  const auto rank = static_cast<std::size_t>(world.rank());
  const auto first = static_cast<std::size_t>(std::ranges::find(kinds, kinds[rank]) - kinds.begin());
  run_or_throw_on_all(world, [&] {
    if (first == rank) build();
  });
  const auto chosen = all_gather_text(world, first == rank ? backend.algorithm_cache() : "");
  run_or_throw_on_all(world, [&] {
    const bool keeps = !config.plan_cache.empty() && config.search_plans;
    if (world.rank() == 0 && keeps) add_to_cache(config.plan_cache, chosen);
    if (first == rank) return;
    backend.load_algorithm_cache(chosen[first]);
    build();
  });
}

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
