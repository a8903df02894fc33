#include "device_choice.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// The form in which ranks send their reports to each other.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceRequest, device, share, allow_mixed);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CudaDevice, name, uuid, pci_bus_id);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceReport, request, host, visible, unavailable_reason, misses_gpus);

namespace {

constexpr const char* kAllVisible = "srun --gpus-per-node=N --gpu-bind=none";

Error refusal(const std::string& text) { return Error(ErrorSource::usage, text).on_all_ranks(); }

bool see_the_same(const DeviceReport& first, const DeviceReport& second) {
  return std::ranges::equal(first.visible, second.visible, {}, &CudaDevice::uuid, &CudaDevice::uuid);
}

class Chooser {
 public:
  explicit Chooser(std::span<const DeviceReport> reports) : reports_(reports), choices_(reports.size()) {}

  std::vector<DeviceChoice> choose() {
    const std::string reason = reason_auto_uses_cpus();
    if (!reason.empty()) {
      for (DeviceChoice& choice : choices_) choice.note = "computing on CPUs: " + reason;
    }
    for (std::size_t rank = 0; rank < reports_.size(); ++rank) {
      if (wants(rank, Device::cuda) || (wants(rank, Device::automatic) && reason.empty())) assign(rank);
    }
    if (!reports_[0].request.share) refuse_shared_devices();
    if (!reports_[0].request.allow_mixed) refuse_mixture();
    if (!reports_[0].request.allow_mixed && !reports_[0].request.share) refuse_instances_of_one_gpu();
    const std::string warning = warning_of_hidden_peers();
    for (DeviceChoice& choice : choices_) choice.warning = warning;
    return choices_;
  }

 private:
  bool wants(std::size_t rank, Device device) const { return reports_[rank].request.device == device; }
  std::string name_of(std::size_t rank) const { return fmt::format("rank {} on {}", rank, reports_[rank].host); }

  // The index of a rank among those of its host that see the same devices and may use them, and the number of those.
  struct LocalIndex {
    std::size_t index = 0;
    std::size_t ranks = 0;
  };
  LocalIndex local_index_of(std::size_t rank) const {
    LocalIndex local;
    for (std::size_t other = 0; other < reports_.size(); ++other) {
      const DeviceReport& report = reports_[other];
      if (wants(other, Device::cpu) || report.host != reports_[rank].host || !see_the_same(report, reports_[rank]))
        continue;
      local.index += other < rank ? 1U : 0U;
      ++local.ranks;
    }
    return local;
  }

  // What a rank can have of the GPUs of its host, from the worst to the best.
  enum class Access { none, crowded, own };
  Access access_of(std::size_t rank) const {
    const std::size_t gpus = reports_[rank].visible.size();
    if (gpus == 0) return Access::none;
    return reports_[0].request.share || local_index_of(rank).ranks <= gpus ? Access::own : Access::crowded;
  }

  std::string shortage_text(std::size_t rank) const {
    const DeviceReport& report = reports_[rank];
    if (report.visible.empty()) return fmt::format("{} has no GPU: {}", name_of(rank), report.unavailable_reason);
    return fmt::format("{} ranks on {} see the same {} GPU{}", local_index_of(rank).ranks, report.host,
                       report.visible.size(), report.visible.size() == 1 ? "" : "s");
  }

  // Why ranks with --device auto use CPUs: none has a GPU, or every host has more ranks than GPUs. Empty if each can
  // have its own. Anything in between is refused: a broken node would slow the whole run down unnoticed.
  std::string reason_auto_uses_cpus() const {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < reports_.size(); ++rank) {
      if (wants(rank, Device::automatic)) ranks.push_back(rank);
    }
    if (ranks.empty()) return {};
    const auto [worst, best] = std::ranges::minmax(ranks, {}, [&](std::size_t rank) { return access_of(rank); });
    if (access_of(worst) == Access::own) return {};
    for (const std::size_t rank : ranks) {
      if (reports_[rank].misses_gpus && access_of(rank) != Access::own) {
        throw half_broken(rank, ", though its driver or launcher announces GPUs");
      }
    }
    if (access_of(worst) != access_of(best)) throw half_broken(worst, fmt::format(", unlike {}", name_of(best)));
    return shortage_text(worst);
  }

  Error half_broken(std::size_t rank, const std::string& contrast) const {
    const std::string& host = reports_[rank].host;
    return refusal(fmt::format(
        "{}{}; --device auto does not fall back to CPUs then: {}, leave that host out (sbatch --exclude={}), or choose "
        "--device cpu",
        shortage_text(rank), contrast,
        access_of(rank) == Access::crowded ? "start as many ranks as GPUs on every host"
                                           : fmt::format("see nvidia-smi and dmesg on {}", host),
        host));
  }

  void assign(std::size_t rank) {
    const std::size_t gpus = reports_[rank].visible.size();
    if (gpus == 0) throw refusal(shortage_text(rank) + "; choose --device cpu");
    const std::size_t index = local_index_of(rank).index;
    if (index >= gpus && !reports_[0].request.share) {
      throw refusal(shortage_text(rank) +
                    ": start as many ranks as GPUs, or for tests let them share with --share-device");
    }
    choices_[rank].device = static_cast<int>(index % gpus);
  }

  // Null: the CPU.
  const CudaDevice* chosen(std::size_t rank) const {
    const auto device = choices_[rank].device;
    return device ? &reports_[rank].visible[static_cast<std::size_t>(*device)] : nullptr;
  }

  // The first two ranks with GPUs for which `fits` holds, the lower one first.
  template <class Fits>
  std::optional<std::pair<std::size_t, std::size_t>> find_two(const Fits& fits) const {
    for (std::size_t rank = 0; rank < reports_.size(); ++rank) {
      for (std::size_t other = 0; other < rank; ++other) {
        if (chosen(rank) != nullptr && chosen(other) != nullptr && fits(other, rank)) return std::pair(other, rank);
      }
    }
    return std::nullopt;
  }

  void refuse_shared_devices() const {
    const auto two = find_two([&](std::size_t a, std::size_t b) { return chosen(a)->uuid == chosen(b)->uuid; });
    if (!two) return;
    throw refusal(fmt::format(
        "{} and {} would both use {} ({}): let all ranks of a host see all its GPUs ({}, or one CUDA_VISIBLE_DEVICES "
        "for all), of which each takes its own, or for tests share it with --share-device",
        name_of(two->first), name_of(two->second), chosen(two->first)->uuid, chosen(two->second)->name, kAllVisible));
  }

  // NCCL distinguishes the GPUs of a host by their bus IDs, and refuses ranks on MIG instances of one GPU.
  void refuse_instances_of_one_gpu() const {
    const auto two = find_two([&](std::size_t a, std::size_t b) {
      return reports_[a].host == reports_[b].host && chosen(a)->pci_bus_id == chosen(b)->pci_bus_id;
    });
    if (!two) return;
    throw refusal(fmt::format(
        "{} and {} have MIG instances of one GPU ({} at {}), between which NCCL does not work: start one rank per "
        "physical GPU, or choose --comm mpi",
        name_of(two->first), name_of(two->second), chosen(two->second)->name, chosen(two->second)->pci_bus_id));
  }

  // NCCL reaches the GPUs of its peers directly only if its process sees them; launchers that hide them with control
  // groups prevent that.
  std::string warning_of_hidden_peers() const {
    if (reports_[0].request.allow_mixed) return {};  // not NCCL
    const auto two = find_two([&](std::size_t a, std::size_t b) {
      return reports_[a].visible.size() == 1 && reports_[b].visible.size() == 1 &&
             reports_[a].host == reports_[b].host && !see_the_same(reports_[a], reports_[b]);
    });
    if (!two) return {};
    return fmt::format(
        "on {}, ranks {} and {} each see only their own GPU, so that NCCL may be unable to use NVLink between them: "
        "let all ranks of a host see all its GPUs ({}, or one CUDA_VISIBLE_DEVICES for all), of which each takes its "
        "own",
        reports_[two->first].host, two->first, two->second, kAllVisible);
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

  std::span<const DeviceReport> reports_;
  std::vector<DeviceChoice> choices_;
};

}  // namespace

std::vector<DeviceChoice> choose_devices(std::span<const DeviceReport> reports) { return Chooser(reports).choose(); }

DeviceChoice choose_device(World& world, const CudaInventory& inventory, const DeviceRequest& request,
                           bool misses_gpus) {
  DeviceReport mine{.request = request,
                    .host = world.host(),
                    .visible = inventory.devices,
                    .unavailable_reason = inventory.unavailable_reason,
                    .misses_gpus = misses_gpus};
  std::ranges::replace(mine.unavailable_reason, '\n', ' ');
  std::vector<DeviceReport> reports;
  using Sent = nlohmann::json;
  const std::string sent = Sent(mine).dump(-1, ' ', false, Sent::error_handler_t::replace);
  for (const std::string& text : all_gather_text(world, sent)) reports.push_back(Sent::parse(text).get<DeviceReport>());
  return choose_devices(reports)[static_cast<std::size_t>(world.rank())];
}

}  // namespace tutti
