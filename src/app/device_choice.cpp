#include "device_choice.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

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
    const std::string obstacle = obstacle_to_auto();
    if (!obstacle.empty()) {
      for (DeviceChoice& choice : choices_) choice.note = "computing on processors: " + obstacle;
    }
    for (std::size_t rank = 0; rank < claims_.size(); ++rank) {
      if (wants(rank, "cuda") || (wants(rank, "auto") && obstacle.empty())) take(rank);
    }
    if (!claims_[0].request.share) refuse_meetings();
    if (!claims_[0].request.mixed) refuse_mixture();
    return choices_;
  }

 private:
  bool wants(std::size_t rank, const char* device) const { return claims_[rank].request.device == device; }
  std::string name_of(std::size_t rank) const { return fmt::format("rank {} on {}", rank, claims_[rank].host); }

  // This rank's place among those of its host that see the same devices and may use them, and how many those are.
  struct Turn {
    std::size_t index = 0;
    std::size_t ranks = 0;
  };
  Turn turn_of(std::size_t rank) const {
    Turn turn;
    for (std::size_t other = 0; other < claims_.size(); ++other) {
      const DeviceClaim& claim = claims_[other];
      if (wants(other, "cpu") || claim.host != claims_[rank].host || !see_the_same(claim, claims_[rank])) continue;
      turn.index += other < rank ? 1U : 0U;
      ++turn.ranks;
    }
    return turn;
  }

  // Why a rank cannot have a GPU; empty if it can.
  std::string obstacle_of(std::size_t rank) const {
    const DeviceClaim& claim = claims_[rank];
    if (claim.visible.empty()) return fmt::format("{} has no GPU: {}", name_of(rank), claim.why_none);
    const Turn turn = turn_of(rank);
    if (claims_[0].request.share || turn.index < claim.visible.size()) return {};
    return fmt::format("{} ranks on {} see the same {} GPU{}", turn.ranks, claim.host, claim.visible.size(),
                       claim.visible.size() == 1 ? "" : "s");
  }

  // The first rank's that was left the choice.
  std::string obstacle_to_auto() const {
    for (std::size_t rank = 0; rank < claims_.size(); ++rank) {
      if (!wants(rank, "auto")) continue;
      if (std::string obstacle = obstacle_of(rank); !obstacle.empty()) return obstacle;
    }
    return {};
  }

  void take(std::size_t rank) {
    if (const std::string obstacle = obstacle_of(rank); !obstacle.empty()) {
      throw refusal(claims_[rank].visible.empty()
                        ? obstacle + "; choose --device cpu, or auto"
                        : obstacle + ": start as many ranks as GPUs, or for tests let them share with --share-device");
    }
    choices_[rank].device = static_cast<int>(turn_of(rank).index % claims_[rank].visible.size());
  }

  const CudaDevice& chosen(std::size_t rank) const {
    return claims_[rank].visible[static_cast<std::size_t>(*choices_[rank].device)];
  }

  void refuse_meetings() const {
    for (std::size_t rank = 0; rank < claims_.size(); ++rank) {
      for (std::size_t other = 0; other < rank; ++other) {
        if (!choices_[rank].device || !choices_[other].device || chosen(rank).uuid != chosen(other).uuid) continue;
        throw refusal(fmt::format(
            "{} and {} would both use {} ({}): let each rank see a GPU of its own (srun --gpus-per-task=1, or one "
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
    throw refusal(fmt::format("{} computes on a GPU and {} does not: --comm mpi lets them meet",
                              name_of(static_cast<std::size_t>(with - choices_.begin())),
                              name_of(static_cast<std::size_t>(without - choices_.begin()))));
  }

  std::span<const DeviceClaim> claims_;
  std::vector<DeviceChoice> choices_;
};

// One line each: what is asked for, host, why none; then UUID and name of each device.
std::string text_of(const DeviceClaim& claim) {
  std::string why = claim.why_none;
  std::ranges::replace(why, '\n', ' ');
  std::string text = fmt::format("{}\n{:d} {:d}\n{}\n{}\n", claim.request.device, claim.request.share,
                                 claim.request.mixed, claim.host, why);
  for (const CudaDevice& device : claim.visible) text += fmt::format("{}\n{}\n", device.uuid, device.name);
  return text;
}

DeviceClaim claim_of(const std::string& text) {
  std::istringstream lines(text);
  DeviceClaim claim;
  std::getline(lines, claim.request.device);
  lines >> claim.request.share >> claim.request.mixed >> std::ws;
  std::getline(lines, claim.host);
  std::getline(lines, claim.why_none);
  for (CudaDevice device; std::getline(lines, device.uuid) && std::getline(lines, device.name);) {
    claim.visible.push_back(device);
  }
  return claim;
}

}  // namespace

std::vector<DeviceChoice> choose_devices(std::span<const DeviceClaim> claims) { return Chooser(claims).choose(); }

DeviceChoice choose_device(World& world, const CudaInventory& inventory, const DeviceRequest& request) {
  const DeviceClaim mine{
      .request = request, .host = world.host(), .visible = inventory.devices, .why_none = inventory.why_none};
  std::vector<DeviceClaim> claims;
  for (const std::string& text : all_gather_text(world, text_of(mine))) claims.push_back(claim_of(text));
  return choose_devices(claims)[static_cast<std::size_t>(world.rank())];
}

}  // namespace tutti
