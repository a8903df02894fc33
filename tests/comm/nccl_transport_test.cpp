#include "comm/nccl/transport.hpp"
#include "support/mpi_world.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace tutti::nccl {
namespace {

// As NCCL 2.28 formats them.
std::string log_of(const std::string& path, const std::string& network) {
  return fmt::format(
      "node1:70:84 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n"
      "node1:70:84 [0] NCCL INFO Using network {}\n"
      "node1:70:84 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 12, bw 20.000000/20.000000, type {}/PIX, "
      "sameChannels 1\n"
      "node1:70:84 [0] NCCL INFO  0 : GPU/0 GPU/1\n"
      "node1:70:84 [0] NCCL INFO Pattern 1, crossNic 0, nChannels 6, bw 40.000000/20.000000, type SYS/PIX, "
      "sameChannels 1\n",
      network, path);
}

TEST(NcclTransport, IsReadFromTheLastRingOfNcclsLog) {
  const Transport nvlink = transport_in(log_of("PHB", "Socket") + log_of("NVL", "IB"));
  EXPECT_EQ(nvlink.within_host, "NVLink");
  EXPECT_EQ(nvlink.between_hosts, "IB");
  EXPECT_EQ(transport_in(log_of("NVB", "IB")).within_host, "NVLink");
  EXPECT_EQ(transport_in(log_of("C2C", "IB")).within_host, "NVLink-C2C");
  EXPECT_EQ(transport_in(log_of("SYS", "IB")).within_host, "PCIe (SYS)");
  EXPECT_EQ(transport_in(log_of("LOC", "IB")).within_host, "") << "the only GPU of its host";
  EXPECT_EQ(transport_in(log_of("PIX", "AWS Libfabric")).between_hosts, "AWS Libfabric");
}

TEST(NcclTransport, IsUnknownWithoutALog) {
  EXPECT_EQ(transport_in("").within_host, "");
  EXPECT_EQ(transport_in("node1:70:84 [0] NCCL INFO Bootstrap: Using eth0").between_hosts, "");
}

TEST(NcclTransport, OfAllRanksNamesThoseOfEach) {
  World& world = test_world();  // on one host
  const bool is_first = world.rank() == 0;
  EXPECT_EQ(transport_text(world, {.within_host = is_first ? "PCIe (PHB)" : "NVLink", .between_hosts = "IB"}),
            world.size() == 1 ? "PCIe (PHB)" : "NVLink and PCIe (PHB)");
  EXPECT_EQ(transport_text(world, {}), "");
}

}  // namespace
}  // namespace tutti::nccl
