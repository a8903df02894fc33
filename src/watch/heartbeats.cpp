#include "heartbeats.hpp"

#include "tutti/base/error.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <set>

namespace tutti {
namespace {

// A flood of datagrams must not keep the watch thread from its other work.
constexpr int kMaxDatagramsPerCall = 100;

sockaddr_in address_of(std::uint32_t host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(port);
  return address;
}

const sockaddr* generic(const sockaddr_in& address) { return reinterpret_cast<const sockaddr*>(&address); }

sockaddr_in own_address(int socket) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0 ? address : sockaddr_in{};
}

std::uint32_t ipv4_of(const sockaddr& address) {
  sockaddr_in internet{};
  std::memcpy(&internet, &address, sizeof internet);
  return ntohl(internet.sin_addr.s_addr);
}

std::string address_text(std::uint32_t address) {
  return fmt::format("{}.{}.{}.{}", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255);
}

std::vector<Interface> usable_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || entry->ifa_netmask == nullptr) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || ipv4_of(*entry->ifa_addr) >> 24 == IN_LOOPBACKNET) continue;
    Interface& next = found.emplace_back();
    std::strncpy(next.name, entry->ifa_name, sizeof next.name - 1);
    next.address = ipv4_of(*entry->ifa_addr);
    next.mask = ipv4_of(*entry->ifa_netmask);
  }
  return found;
}

// The source address that this host would use to send to `host`; 0: there is no route. Sends nothing.
std::uint32_t source_towards(std::uint32_t host) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = address_of(host, 9);  // the port does not matter
  if (!socket || ::connect(socket.get(), generic(address), sizeof address) != 0) return 0;
  return ntohl(own_address(socket.get()).sin_addr.s_addr);
}

// Null if the host has no address in that network.
const Interface* find_in(const std::vector<Interface>& host, const Interface& wanted) {
  const auto found = std::ranges::find_if(host, [&](const Interface& interface) {
    return interface.mask == wanted.mask && interface.network() == wanted.network();
  });
  return found == host.end() ? nullptr : &*found;
}

// Empty: there is no interface through which this host could reach the others.
std::optional<Interface> interface_of(World& world, const Roster& roster, const std::string& wanted) {
  std::vector<Interface> own;
  run_or_throw_on_all(world, [&] { own = chosen_interfaces(wanted); });
  const auto all = all_gather_values<Interface>(world, own);
  if (!wanted.empty()) return own.front();
  std::vector<std::vector<Interface>> hosts;
  for (const HostRanks& host : roster.hosts) hosts.push_back(all[static_cast<std::size_t>(host.ranks.front())]);
  const std::size_t own_host = roster.host_of(world.rank());
  const auto shared = shared_interface(hosts, own_host);
  return shared ? shared : routed_interface(own, hosts[own_host == 0 ? 1 : 0]);
}

}  // namespace

std::vector<Interface> chosen_interfaces(const std::string& name) {
  std::vector<Interface> all = usable_interfaces();
  if (name.empty()) return all;
  std::vector<std::string> names;
  for (const Interface& interface : all) {
    if (name == interface.name) return {interface};
    names.emplace_back(interface.name);
  }
  throw Error(ErrorSource::usage,
              fmt::format("--watch-interface {}: no interface of that name is up with an IPv4 address "
                          "reachable from other hosts; choose from [{}], or leave it out",
                          name, fmt::join(names, ", ")));
}

std::optional<Interface> shared_interface(std::span<const std::vector<Interface>> hosts, std::size_t own_host) {
  for (const Interface& candidate : hosts.front()) {
    std::set<std::uint32_t> addresses;  // container bridges have the same address on every host
    for (const auto& host : hosts) {
      if (const Interface* const found = find_in(host, candidate)) addresses.insert(found->address);
    }
    if (addresses.size() == hosts.size()) return *find_in(hosts[own_host], candidate);
  }
  return std::nullopt;
}

std::optional<Interface> routed_interface(std::span<const Interface> own, std::span<const Interface> other) {
  for (const Interface& there : other) {
    const auto found = std::ranges::find(own, source_towards(there.address), &Interface::address);
    if (found != own.end() && found->address != there.address) return *found;
  }
  return std::nullopt;
}

Heartbeats::Heartbeats(World& world, const Roster& roster, const std::string& interface)
    : Heartbeats(world, interface_of(world, roster, interface)) {}

Heartbeats::Heartbeats(World& world, const std::optional<Interface>& chosen)
    : description_("no network that reaches all of them"), nonce_(std::random_device{}()), own_rank_(world.rank()) {
  nonce_ = nonce_ << 32 | std::random_device{}();
  world.broadcast(std::as_writable_bytes(std::span(&nonce_, 1)), 0);
  sockaddr_in mine{};
  if (chosen) {
    description_ = fmt::format("{} ({})", chosen->name, address_text(chosen->address));
    socket_ = Descriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const sockaddr_in any_port = address_of(chosen->address, 0);
    if (socket_ && ::bind(socket_.get(), generic(any_port), sizeof any_port) == 0) mine = own_address(socket_.get());
  }
  for (const auto& theirs : all_gather_values<sockaddr_in>(world, std::span(&mine, 1))) {
    addresses_.push_back(theirs.front());
  }
}

void Heartbeats::send(DatagramKind kind, std::span<const RankState> states, int rank) const {
  const sockaddr_in& to = addresses_[static_cast<std::size_t>(rank)];
  if (!socket_ || to.sin_port == 0) return;
  do {
    const auto some = states.first(std::min(states.size(), kMaxStates));
    states = states.subspan(some.size());
    Datagram datagram{.kind = kind, .nonce = nonce_, .sender = own_rank_};
    datagram.count = static_cast<std::uint32_t>(some.size());
    std::ranges::copy(some, datagram.states.begin());
    static_cast<void>(::sendto(socket_.get(), &datagram, datagram.bytes(), 0, generic(to), sizeof to));
  } while (!states.empty());
}

std::vector<Datagram> Heartbeats::receive() const {
  std::vector<Datagram> received;
  for (int i = 0; socket_ && i < kMaxDatagramsPerCall; ++i) {
    Datagram datagram;
    sockaddr_in from{};
    socklen_t from_length = sizeof from;
    const ssize_t length = retry_on_eintr([&] {
      return ::recvfrom(socket_.get(), &datagram, sizeof datagram, MSG_TRUNC, reinterpret_cast<sockaddr*>(&from),
                        &from_length);
    });
    if (length < 0) break;
    if (!datagram.is_valid(static_cast<std::size_t>(length), nonce_)) continue;
    if (datagram.sender < 0 || datagram.sender >= std::ssize(addresses_)) continue;
    const sockaddr_in& sender = addresses_[static_cast<std::size_t>(datagram.sender)];
    if (from.sin_addr.s_addr != sender.sin_addr.s_addr || from.sin_port != sender.sin_port) continue;
    received.push_back(datagram);
  }
  return received;
}

}  // namespace tutti
