#include "tutti/base/error.hpp"

#include "processors.hpp"
#include "support/mpi_world.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace tutti {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Devices = std::vector<std::optional<int>>;

constexpr std::optional<int> kProcessor;

CudaDevice gpu(const std::string& host, int number) {
  return {.name = "NVIDIA H200", .uuid = fmt::format("GPU-{}-{}", host, number)};
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
  try {
    choose_devices(claims);
  } catch (const Error& error) {
    EXPECT_EQ(error.source(), ErrorSource::usage);
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    return error.what();
  }
  return "nothing was refused";
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
  EXPECT_THAT(refusal_of(cuda), AllOf(HasSubstr("3 ranks on a see the same 2 GPUs"), HasSubstr("--share-device")));
  const std::vector<DeviceReport> any(3, rank_on("a", {0, 1}));
  EXPECT_THAT(devices_of(any), ElementsAre(kProcessor, kProcessor, kProcessor));
  EXPECT_THAT(note_of(any), HasSubstr("3 ranks on a see the same 2 GPUs"));
}

TEST(DeviceChoice, RefusesTwoRanksOnOneUuidAndNamesBoth) {
  // Containers on one machine have different host names.
  std::vector<DeviceReport> claims{rank_on("a", {0}), rank_on("b", {0})};
  claims[1].visible = claims[0].visible;
  EXPECT_THAT(refusal_of(claims), AllOf(HasSubstr("rank 0 on a and rank 1 on b would both use GPU-a-0 (NVIDIA H200)"),
                                        HasSubstr("--gpus-per-task=1")));
  // Masks that overlap.
  EXPECT_THAT(refusal_of({rank_on("a", {0, 1}), rank_on("a", {0})}), HasSubstr("GPU-a-0"));
}

TEST(DeviceChoice, SharesGpusOnlyWhenAskedTo) {
  const DeviceRequest share{.device = Device::cuda, .share = true};
  EXPECT_THAT(devices_of(std::vector<DeviceReport>(4, rank_on("a", {0}, share))), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(devices_of(std::vector<DeviceReport>(4, rank_on("a", {0, 1}, share))), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(refusal_of(std::vector<DeviceReport>(2, rank_on("a", {0}, kCuda))),
              HasSubstr("2 ranks on a see the same 1 GPU:"));
}

TEST(DeviceChoice, WithoutDriverOnOneRankIsTheProcessorForAllOrARefusal) {
  EXPECT_THAT(devices_of({rank_on("a", {0}), rank_on("b", {})}), ElementsAre(kProcessor, kProcessor));
  EXPECT_EQ(note_of({rank_on("a", {0}), rank_on("b", {})}), "computing on CPUs: rank 1 on b has no GPU: no driver");
  EXPECT_EQ(refusal_of({rank_on("a", {0}, kCuda), rank_on("b", {}, kCuda)}),
            "rank 1 on b has no GPU: no driver; choose --device cpu, or auto");
}

TEST(DeviceChoice, LetsRanksWithAndWithoutGpuCommunicateOnlyInHostMemory) {
  const DeviceRequest cuda{.device = Device::cuda, .allow_mixed = true};
  const DeviceRequest cpu{.device = Device::cpu, .allow_mixed = true};
  EXPECT_THAT(devices_of({rank_on("a", {0, 1}, cpu), rank_on("a", {0, 1}, cuda), rank_on("b", {}, cpu),
                          rank_on("a", {0, 1}, cuda)}),
              ElementsAre(kProcessor, 0, kProcessor, 1));
  EXPECT_THAT(refusal_of({rank_on("a", {0}, kCpu), rank_on("a", {0}, kCuda)}),
              HasSubstr("rank 1 on a computes on a GPU and rank 0 on a does not: use --comm mpi"));
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
  if (rank == world.size() - 1) {
    inventory.devices.clear();
    inventory.unavailable_reason = "no driver";
  }
  const DeviceChoice choice = choose_device(world, inventory, {});
  EXPECT_EQ(choice.device, kProcessor);
  EXPECT_EQ(choice.note,
            fmt::format("computing on CPUs: rank {} on {} has no GPU: no driver", world.size() - 1, world.host()));
}

}  // namespace
}  // namespace tutti
