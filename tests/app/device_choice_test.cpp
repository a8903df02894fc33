#include "device_choice.hpp"

#include "tutti/base/error.hpp"

#include "support/mpi_world.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace tutti {
namespace {

using testing::ElementsAre;
using Devices = std::vector<std::optional<int>>;

constexpr std::optional<int> kProcessor;

CudaDevice gpu(const std::string& host, int number) {
  return {.name = "NVIDIA H200",
          .uuid = fmt::format("GPU-{}-{}", host, number),
          .pci_bus_id = fmt::format("0000:{:02x}:00.0", number)};
}

// A rank on a host to which its launcher made these GPUs visible.
DeviceReport rank_on(const std::string& host, const std::vector<int>& visible, const DeviceRequest& request = {}) {
  DeviceReport claim{
      .request = request, .host = host, .visible = {}, .unavailable_reason = visible.empty() ? "no driver" : ""};
  for (const int number : visible) claim.visible.push_back(gpu(host, number));
  return claim;
}

Devices devices_of(const std::vector<DeviceReport>& claims) {
  Devices devices;
  for (const DeviceChoice& choice : choose_devices(claims)) devices.push_back(choice.device);
  return devices;
}

std::string note_of(const std::vector<DeviceReport>& claims) { return choose_devices(claims).front().note; }

std::string refusal_of(const std::vector<DeviceReport>& claims) {
  const Error error = thrown_by([&] { choose_devices(claims); });
  EXPECT_EQ(error.source(), ErrorSource::usage);
  EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
  return error.what();
}

const DeviceRequest kCuda{.device = Device::cuda};
const DeviceRequest kCpu{.device = Device::cpu};

TEST(DeviceChoice, UnderMpirunWithAllGpusVisibleIsTheLocalRank) {
  const std::vector<int> all{0, 1, 2, 3};
  const std::vector<DeviceReport> claims(4, rank_on("a", all));
  EXPECT_THAT(devices_of(claims), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(note_of(claims), "");
}

TEST(DeviceChoice, OnTwoHostsStartsAgainOnEach) {
  const DeviceReport a = rank_on("a", {0, 1});
  const DeviceReport b = rank_on("b", {0, 1});
  EXPECT_THAT(devices_of({a, a, b, b}), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(devices_of({a, b, a, b}), ElementsAre(0, 0, 1, 1));
}

TEST(DeviceChoice, UnderSrunWithOneGpuPerTaskIsTheOnlyOne) {
  EXPECT_THAT(devices_of({rank_on("a", {0}), rank_on("a", {1}), rank_on("a", {2}), rank_on("a", {3})}),
              ElementsAre(0, 0, 0, 0));
}

std::string warning_of(const std::vector<DeviceReport>& claims) { return choose_devices(claims).back().warning; }

TEST(DeviceChoice, WarnsOfRanksOfAHostThatSeeOnlyTheirOwnGpus) {
  EXPECT_THAT(warning_of({rank_on("b", {0}), rank_on("a", {0}), rank_on("a", {1})}),
              mentions("on a, ranks 1 and 2 ", "NVLink", "srun --gpus-per-node=N --gpu-bind=none"));
  EXPECT_EQ(warning_of({rank_on("a", {0, 1}), rank_on("a", {0, 1})}), "");
  EXPECT_EQ(warning_of({rank_on("a", {0}), rank_on("b", {0})}), "") << "one GPU on each host";
  const DeviceRequest by_mpi{.device = Device::cuda, .allow_mixed = true};
  EXPECT_EQ(warning_of({rank_on("a", {0}, by_mpi), rank_on("a", {1}, by_mpi)}), "");
  const DeviceRequest share{.device = Device::cuda, .share = true};
  EXPECT_EQ(warning_of({rank_on("a", {0}, share), rank_on("a", {0}, share)}), "");
}

TEST(DeviceChoice, FollowsCudaVisibleDevicesThatDifferByRank) {
  EXPECT_THAT(devices_of({rank_on("a", {3}), rank_on("a", {2, 1})}), ElementsAre(0, 0));
  const DeviceReport masked = rank_on("a", {2, 3});
  EXPECT_THAT(devices_of({masked, masked}), ElementsAre(0, 1));
}

TEST(DeviceChoice, AssignsOneGpuToEachRankOfASharedMask) {
  const DeviceReport low = rank_on("a", {0, 1});
  const DeviceReport high = rank_on("a", {2, 3});
  EXPECT_THAT(devices_of({low, low, high, high}), ElementsAre(0, 1, 0, 1));
}

TEST(DeviceChoice, RefusesMoreRanksThanGpus) {
  const std::vector<DeviceReport> cuda(3, rank_on("a", {0, 1}, kCuda));
  EXPECT_THAT(refusal_of(cuda), mentions("3 ranks on a ", "the same 2 GPUs", "--share-device"));
  const std::vector<DeviceReport> any(3, rank_on("a", {0, 1}));
  EXPECT_THAT(devices_of(any), ElementsAre(kProcessor, kProcessor, kProcessor));
  EXPECT_THAT(note_of(any), mentions("3 ranks on a ", "the same 2 GPUs"));
}

TEST(DeviceChoice, RefusesTwoRanksOnOneUuidAndNamesBoth) {
  // Containers on one machine have different host names.
  std::vector<DeviceReport> claims{rank_on("a", {0}), rank_on("b", {0})};
  claims[1].visible = claims[0].visible;
  EXPECT_THAT(refusal_of(claims), mentions("rank 0 on a and rank 1 on b ", "GPU-a-0 (NVIDIA H200)",
                                           "srun --gpus-per-node=N --gpu-bind=none"));
  // Masks that overlap.
  EXPECT_THAT(refusal_of({rank_on("a", {0, 1}), rank_on("a", {0})}), mentions("GPU-a-0"));
}

// The instances have different UUIDs, and each process sees one.
std::vector<DeviceReport> ranks_with_instances_of_one_gpu(const DeviceRequest& request) {
  std::vector<DeviceReport> claims{rank_on("a", {0}, request), rank_on("a", {1}, request)};
  for (DeviceReport& claim : claims) claim.visible[0].pci_bus_id = "0000:3b:00.0";
  return claims;
}

TEST(DeviceChoice, RefusesMigInstancesOfOneGpuBetweenWhichNcclWouldBeUsed) {
  EXPECT_THAT(refusal_of(ranks_with_instances_of_one_gpu({})),
              mentions("rank 0 on a and rank 1 on a ", "NVIDIA H200 at 0000:3b:00.0", "one rank per physical GPU",
                       "--comm mpi"));
  EXPECT_THAT(devices_of(ranks_with_instances_of_one_gpu({.allow_mixed = true})), ElementsAre(0, 0));
  EXPECT_THAT(devices_of(ranks_with_instances_of_one_gpu({.share = true})), ElementsAre(0, 0));
}

TEST(DeviceChoice, SharesGpusOnlyWhenAskedTo) {
  const DeviceRequest share{.device = Device::cuda, .share = true};
  EXPECT_THAT(devices_of(std::vector<DeviceReport>(4, rank_on("a", {0}, share))), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(devices_of(std::vector<DeviceReport>(4, rank_on("a", {0, 1}, share))), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(refusal_of(std::vector<DeviceReport>(2, rank_on("a", {0}, kCuda))),
              mentions("2 ranks on a ", "the same 1 GPU:"));
}

TEST(DeviceChoice, IsTheProcessorIfNoRankHasAGpu) {
  EXPECT_THAT(devices_of({rank_on("a", {}), rank_on("b", {})}), ElementsAre(kProcessor, kProcessor));
  EXPECT_EQ(note_of({rank_on("a", {}), rank_on("b", {})}), "computing on CPUs: rank 0 on a has no GPU: no driver");
}

TEST(DeviceChoice, RefusesToFallBackToCpusIfOnlySomeRanksHaveGpus) {
  EXPECT_EQ(refusal_of({rank_on("a", {0}), rank_on("b", {})}),
            "rank 1 on b has no GPU: no driver, unlike rank 0 on a; --device auto does not fall back to CPUs then: see "
            "nvidia-smi and dmesg on b, leave that host out (sbatch --exclude=b), or choose --device cpu");
  const DeviceReport whole = rank_on("a", {0, 1});
  const DeviceReport lacking = rank_on("b", {0});
  EXPECT_THAT(
      refusal_of({whole, whole, lacking, lacking}),
      mentions("2 ranks on b ", "the same 1 GPU, unlike rank 1 on a", "start as many ranks as GPUs", "--exclude=b"));
  EXPECT_EQ(refusal_of({rank_on("a", {0}, kCuda), rank_on("b", {}, kCuda)}),
            "rank 1 on b has no GPU: no driver; choose --device cpu");
}

TEST(DeviceChoice, RefusesToFallBackToCpusIfGpusAreMissing) {
  DeviceReport broken = rank_on("b", {});
  broken.misses_gpus = true;
  broken.unavailable_reason = "cudaErrorSystemNotReady";
  EXPECT_THAT(refusal_of({rank_on("a", {}), broken}),
              mentions("rank 1 on b has no GPU: cudaErrorSystemNotReady, though ", "--device auto ",
                       "see nvidia-smi and dmesg on b"));
  broken = rank_on("b", {0, 1});  // of three
  broken.misses_gpus = true;
  EXPECT_THAT(refusal_of({broken, broken, broken}), mentions("3 ranks on b ", "the same 2 GPUs, though "));
  EXPECT_THAT(devices_of({broken, broken}), ElementsAre(0, 1)) << "enough for these ranks";
  broken.request = kCpu;
  EXPECT_THAT(devices_of({broken}), ElementsAre(kProcessor));
}

TEST(DeviceChoice, LetsRanksWithAndWithoutGpuCommunicateOnlyInHostMemory) {
  const DeviceRequest cuda{.device = Device::cuda, .allow_mixed = true};
  const DeviceRequest cpu{.device = Device::cpu, .allow_mixed = true};
  EXPECT_THAT(devices_of({rank_on("a", {0, 1}, cpu), rank_on("a", {0, 1}, cuda), rank_on("b", {}, cpu),
                          rank_on("a", {0, 1}, cuda)}),
              ElementsAre(kProcessor, 0, kProcessor, 1));
  EXPECT_THAT(refusal_of({rank_on("a", {0}, kCpu), rank_on("a", {0}, kCuda)}),
              mentions("rank 1 on a computes on a GPU", "rank 0 on a does not", "use --comm mpi"));
}

TEST(DeviceChoice, OfProcessorsAsksForNoGpu) {
  EXPECT_THAT(devices_of({rank_on("a", {}, kCpu), rank_on("a", {0}, kCpu)}), ElementsAre(kProcessor, kProcessor));
  EXPECT_EQ(note_of({rank_on("a", {}, kCpu)}), "");
}

TEST(DeviceChoice, IsMadeFromWhatAllRanksSee) {
  World& world = test_world();
  const int rank = world.rank();
  CudaInventory inventory;
  inventory.devices = {gpu("this", 7), gpu("this", 8), gpu("this", 9)};
  EXPECT_EQ(choose_device(world, inventory, {.device = Device::automatic}).device, rank);
  inventory.devices = {gpu("this", rank)};
  EXPECT_EQ(choose_device(world, inventory, {.device = Device::cuda}).device, 0);
  if (world.size() > 1) {
    inventory.devices[0].pci_bus_id = "0000:3b:00.0";
    EXPECT_THROW(choose_device(world, inventory, {.device = Device::cuda}), Error);
  }
  inventory.devices.clear();
  inventory.unavailable_reason = "no driver";
  const DeviceChoice choice = choose_device(world, inventory, {});
  EXPECT_EQ(choice.device, kProcessor);
  EXPECT_EQ(choice.note, fmt::format("computing on CPUs: rank 0 on {} has no GPU: no driver", world.host()));
  const Error refused = thrown_by([&] { choose_device(world, inventory, {}, rank == world.size() - 1); });
  EXPECT_EQ(refused.scope(), ErrorScope::all_ranks);
  EXPECT_THAT(refused,
              reports(ErrorSource::usage, fmt::format("rank {} on {} has no GPU", world.size() - 1, world.host())));
}

}  // namespace
}  // namespace tutti
