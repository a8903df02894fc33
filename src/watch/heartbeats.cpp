#include "heartbeats.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/uninterrupted.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <utility>

namespace tutti {
namespace {

// The watch's thread has more to do than to read.
constexpr int kMostAtOnce = 100;

sockaddr_in address_of(std::uint32_t host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(port);
  return address;
}

const sockaddr* generic(const sockaddr_in& address) { return reinterpret_cast<const sockaddr*>(&address); }

// The port it got; 0: it got none.
std::uint16_t bind_anywhere(int socket, std::uint32_t host) {
  sockaddr_in address = address_of(host, 0);
  socklen_t length = sizeof address;
  if (::bind(socket, generic(address), sizeof address) != 0) return 0;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.sin_port);
}

// Empty: there is none through which this host would hear the others.
std::optional<Interface> interface_of(World& world, const Roster& roster, const std::string& wanted) {
  std::vector<Interface> own;
  run_agreed(world, [&] { own = chosen_interfaces(wanted); });
  const auto texts = all_gather_text(world, text_of(own));
  if (!wanted.empty()) return own.front();
  std::vector<std::vector<Interface>> hosts;
  for (const HostRanks& host : roster.hosts) {
    hosts.push_back(interfaces_of(texts[static_cast<std::size_t>(host.ranks.front())]));
  }
  const std::size_t own_host = roster.host_of_rank[static_cast<std::size_t>(world.rank())];
  const auto shared = shared_interface(hosts, own_host);
  return shared ? shared : routed_interface(own, hosts[own_host == 0 ? 1 : 0]);
}

}  // namespace

Heartbeats::Heartbeats(World& world, const Roster& roster, const std::string& interface)
    : Heartbeats(world, interface_of(world, roster, interface)) {}

Heartbeats::Heartbeats(World& world, const std::optional<Interface>& chosen)
    : description_("no network that leads to all of them"), nonce_(std::random_device{}()) {
  nonce_ = nonce_ << 32 | std::random_device{}();
  world.broadcast(std::as_writable_bytes(std::span(&nonce_, 1)), 0);
  Address mine;
  if (chosen) {
    description_ = fmt::format("{} ({})", chosen->name, address_text(chosen->address));
    socket_ = Descriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket_) mine = {.host = chosen->address, .port = bind_anywhere(socket_.get(), chosen->address)};
  }
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    std::memcpy(&addresses_.emplace_back(), bytes.data(), sizeof(Address));
  }
}

void Heartbeats::send(const Datagram& datagram, int rank) const {
  const Address& to = addresses_[static_cast<std::size_t>(rank)];
  if (!socket_ || to.port == 0) return;
  const sockaddr_in address = address_of(to.host, to.port);
  for (const auto& bytes : pack(datagram, nonce_)) {
    static_cast<void>(::sendto(socket_.get(), bytes.data(), bytes.size(), 0, generic(address), sizeof address));
  }
}

std::vector<Datagram> Heartbeats::receive() const {
  std::vector<Datagram> received;
  std::array<std::byte, kMostDatagram + 1> bytes;  // what is longer is none of ours
  for (int i = 0; socket_ && i < kMostAtOnce; ++i) {
    sockaddr_in from{};
    socklen_t from_length = sizeof from;
    const ssize_t length = uninterrupted([&] {
      return ::recvfrom(socket_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&from), &from_length);
    });
    if (length < 0) break;
    auto datagram = unpack(std::span(bytes).first(static_cast<std::size_t>(length)), nonce_);
    if (!datagram || datagram->sender < 0 || datagram->sender >= std::ssize(addresses_)) continue;
    const Address sender{.host = ntohl(from.sin_addr.s_addr), .port = ntohs(from.sin_port)};
    if (sender == addresses_[static_cast<std::size_t>(datagram->sender)]) received.push_back(std::move(*datagram));
  }
  return received;
}

}  // namespace tutti
