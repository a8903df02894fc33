#include "watch/heartbeats.hpp"

#include "tutti/base/error.hpp"

#include "watch/ranks_at_work.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <random>

namespace tutti {
namespace {

constexpr std::uint64_t kNonce = 0x123456789abcdef0;

Datagram report_of(std::size_t ranks, int sender = 0) {
  Datagram datagram{.nonce = kNonce, .sender = sender, .count = static_cast<std::uint32_t>(ranks)};
  const auto views = test::waiting_ranks(ranks);
  std::ranges::transform(views, datagram.states.begin(), &RankView::state);
  return datagram;
}

// The sender and the receiver are the same rank.
class OwnDatagrams : public ::testing::Test {
 protected:
  std::unique_ptr<World> world_ = make_solo_world();
  const Heartbeats heartbeats_{*world_, Interface{.name = "lo", .address = INADDR_LOOPBACK}};
};

TEST_F(OwnDatagrams, ArriveAsTheyWereSent) {
  heartbeats_.send(DatagramKind::report, report_of(3).sent_states(), 0);
  const auto arrived = heartbeats_.receive();
  ASSERT_EQ(arrived.size(), 1u);
  EXPECT_EQ(arrived.front().kind, DatagramKind::report);
  ASSERT_EQ(arrived.front().sent_states().size(), 3u);
  EXPECT_EQ(arrived.front().states[2].rank, 2);
  EXPECT_EQ(arrived.front().states[2].phase, Phase::waiting);
  EXPECT_EQ(arrived.front().states[2].begun, 90u);
}

TEST_F(OwnDatagrams, AreSplitSoThatNoUsualNetworkFragmentsThem) {
  std::vector<RankState> sent;
  for (const RankView& rank : test::waiting_ranks(250)) sent.push_back(rank.state);
  heartbeats_.send(DatagramKind::report, sent, 0);
  std::size_t states = 0;
  for (const Datagram& datagram : heartbeats_.receive()) {
    EXPECT_LE(datagram.bytes(), 1400u);
    for (const RankState& state : datagram.sent_states()) EXPECT_EQ(static_cast<std::size_t>(state.rank), states++);
  }
  EXPECT_EQ(states, 250u);
}

TEST(Datagrams, OfAnotherJobSizeOrVersionAreDropped) {
  Datagram datagram = report_of(2);
  EXPECT_TRUE(datagram.is_valid(datagram.bytes(), kNonce));
  EXPECT_FALSE(datagram.is_valid(datagram.bytes(), kNonce + 1));
  for (std::size_t length = 0; length < datagram.bytes(); ++length) {
    EXPECT_FALSE(datagram.is_valid(length, kNonce)) << length;
  }
  EXPECT_FALSE(datagram.is_valid(datagram.bytes() + 1, kNonce));
  ++datagram.magic;
  EXPECT_FALSE(datagram.is_valid(datagram.bytes(), kNonce));
}

TEST(Datagrams, OfGarbageNeverHaveValuesOutOfRange) {
  const Datagram good = report_of(4);
  const Roster roster{.hosts = {{"n1", {0, 1}}, {"n2", {2, 3}}}, .host_of_rank = {0, 0, 1, 1}};
  JobView view(roster, 0, 0);
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    Datagram arrived = good;
    const auto bytes = std::as_writable_bytes(std::span(&arrived, 1)).first(good.bytes());
    for (std::uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (!arrived.is_valid(bytes.size(), kNonce)) continue;
    for (const RankState& state : arrived.sent_states()) {
      EXPECT_LE(state.phase, Phase::ending);
      EXPECT_LE(state.activity, Activity::gone);
    }
    if (arrived.sender >= 0 && arrived.sender < 4) view.record(arrived, i);
  }
  for (const RankView& rank : view.refresh(100'000, 2)) EXPECT_TRUE(rank.state.rank >= 0 && rank.state.rank < 4);
}

class TwoHosts : public ::testing::Test {
 protected:
  std::vector<Contact> contacts(std::int64_t now_ns) {
    std::vector<Contact> found;
    for (const RankView& rank : view_.refresh(now_ns, 2)) found.push_back(rank.contact);
    return found;
  }

  Roster roster_{.hosts = {{"n1", {0, 2}}, {"n2", {1, 3}}}, .host_of_rank = {0, 1, 0, 1}};
  JobView view_{roster_, 0, 0};
};

TEST_F(TwoHosts, AreKnownByWhatTheySend) {
  view_.record_own(report_of(1).sent_states(), 0);
  EXPECT_EQ(contacts(0), (std::vector{Contact::good, Contact::never, Contact::good, Contact::never}));
  EXPECT_EQ(view_.hosts_never_contacted(), std::vector<std::string>{"n2"});
  view_.record(report_of(4, 1), 1'000'000'000);
  EXPECT_EQ(contacts(1'500'000'000), std::vector(4, Contact::good));
  EXPECT_EQ(contacts(4'000'000'000), (std::vector{Contact::good, Contact::lost, Contact::good, Contact::lost}));
}

TEST_F(TwoHosts, ReportOnlyTheirOwnRanks) {
  view_.record(report_of(4, 1), 0);
  const auto ranks = view_.refresh(0, 2);
  EXPECT_EQ(ranks[2].state.begun, 0u);
  EXPECT_EQ(ranks[3].state.begun, 90u);
}

TEST_F(TwoHosts, KnowOfAFailureOnTheOther) {
  Datagram report = report_of(4, 1);
  view_.record(report, 0);
  EXPECT_FALSE(view_.has_failed());
  report.states[3].end = RankEnd::failed;
  view_.record(report, 0);
  EXPECT_TRUE(view_.has_failed());
}

TEST(Interfaces, AreSharedWhenAllHostsHaveDifferentAddressesInOneNetwork) {
  constexpr std::uint32_t kMask = 0xffffff00;
  const Interface bridge{.name = "docker0", .address = 0xac110001, .mask = kMask};
  const auto cable = [&](std::uint32_t host) {
    return Interface{.name = "eth0", .address = 0x0a4e0000 + host, .mask = kMask};
  };
  const std::vector<std::vector<Interface>> hosts{{bridge, cable(1)}, {cable(2), bridge}};
  const auto shared = shared_interface(hosts, 1);
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->address, cable(2).address);
  EXPECT_FALSE(shared_interface(std::vector<std::vector<Interface>>{{bridge}, {bridge}}, 0));
}

TEST(Interfaces, OfNoSharedNetworkAreThoseOfTheRouteToTheOtherHost) {
  const std::vector<Interface> own{{.name = "other", .address = 0x0a000001, .mask = 0xffffffff},
                                   {.name = "lo", .address = INADDR_LOOPBACK, .mask = 0xffffffff}};
  const Interface bridge{.name = "bridge", .address = INADDR_LOOPBACK, .mask = 0xffffffff};  // this host's as well
  const Interface there{.name = "there", .address = INADDR_LOOPBACK + 1, .mask = 0xffffffff};
  EXPECT_FALSE(shared_interface(std::vector<std::vector<Interface>>{own, {there}}, 0));
  EXPECT_FALSE(routed_interface(own, std::vector{bridge}));
  const auto routed = routed_interface(own, std::vector{bridge, there});
  ASSERT_TRUE(routed);
  EXPECT_STREQ(routed->name, "lo");
}

TEST(Interfaces, AreThoseOfThisHostOrTheOneOfThatName) {
  const auto all = chosen_interfaces("");
  for (const Interface& each : all) EXPECT_EQ(chosen_interfaces(each.name).size(), 1u);
  for (const Interface& each : all) EXPECT_NE(each.address >> 24, IN_LOOPBACKNET) << each.name;
  EXPECT_THROW(chosen_interfaces("eth99"), Error);
}

TEST_F(OwnDatagrams, AreAcceptedOnlyFromTheirSendersAndABoundedNumberAtATime) {
  heartbeats_.send(DatagramKind::ending, {}, 0);
  sockaddr_in to{};
  socklen_t to_length = sizeof to;
  auto* const generic = reinterpret_cast<sockaddr*>(&to);
  ASSERT_EQ(::getsockname(heartbeats_.descriptor(), generic, &to_length), 0);
  std::array<std::byte, 100> bytes;
  const ssize_t length = ::recv(heartbeats_.descriptor(), bytes.data(), bytes.size(), 0);
  ASSERT_GT(length, 0);
  const Descriptor stranger(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::sendto(stranger.get(), bytes.data(), static_cast<std::size_t>(length), 0, generic, to_length), length);
  EXPECT_TRUE(heartbeats_.receive().empty());
  for (int i = 0; i < 150; ++i) heartbeats_.send(DatagramKind::ending, {}, 0);
  const std::size_t first = heartbeats_.receive().size();
  EXPECT_TRUE(first > 0 && first < 150) << first;
  EXPECT_FALSE(heartbeats_.receive().empty());
}

}  // namespace
}  // namespace tutti
