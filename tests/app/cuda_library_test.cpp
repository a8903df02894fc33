// These tests need the library. They pass with and without a GPU.

#include "processors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::MatchesRegex;

TEST(CudaLibrary, IsFoundNextToLibtuttiAndIsOfThisBuild) {
  const CudaLibraries libraries = load_cuda_libraries();
  EXPECT_EQ(libraries.cuda.interface_version, kCudaInterfaceVersion);
  EXPECT_NE(libraries.cuda.make_backend, nullptr);
  EXPECT_NE(libraries.nccl.make_communicator, nullptr);
}

TEST(CudaLibrary, ReportsTheVersionsOfItsLibraries) {
  const CudaLibraries libraries = load_cuda_libraries();
  const CudaInventory inventory = libraries.cuda.query();
  EXPECT_THAT(inventory.runtime_version, MatchesRegex("[0-9]+\\.[0-9]+"));
  EXPECT_THAT(inventory.driver_version, MatchesRegex("no driver|[0-9]+\\.[0-9]+"));
  EXPECT_THAT(inventory.cudnn_version, MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(libraries.nccl.version(), MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(CudaLibrary, DescribesEveryDeviceOrReportsWhyThereIsNone) {
  const CudaInventory inventory = load_cuda_libraries().cuda.query();
  EXPECT_EQ(inventory.devices.empty(), !inventory.unavailable_reason.empty());
  if (inventory.driver_version == "no driver") {
    EXPECT_EQ(inventory.unavailable_reason, "no driver");
  }
  for (const CudaDevice& device : inventory.devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.memory_bytes, 0);
    EXPECT_THAT(device.pci_bus_id, MatchesRegex("[0-9a-f]+:[0-9a-f]+:[0-9a-f]+[.][0-7]"));
    EXPECT_THAT(device.uuid, MatchesRegex("GPU-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"));
  }
}

}  // namespace
}  // namespace tutti
