#pragma once
// How the watchers of different hosts talk: a UDP socket of every rank's watch thread, and the network interface that
// it is bound to.

#include "tutti/base/unique_handle.hpp"
#include "tutti/comm/world.hpp"

#include "rank_view.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// IPv4, in the host's byte order. All of its bytes are sent.
struct Interface {
  char name[16] = {};
  std::uint32_t address = 0;
  std::uint32_t mask = 0;

  std::uint32_t network() const { return address & mask; }
};

// The interfaces that are up and have an address that other hosts can reach, or the one of this name. Throws a usage
// error where there is none of that name.
std::vector<Interface> chosen_interfaces(const std::string& name);

// Of the first host's interfaces, the first whose network all hosts are in, each at an address of its own: this host's
// interface there. Empty: there is none.
std::optional<Interface> shared_interface(std::span<const std::vector<Interface>> hosts, std::size_t own_host);
// Where hosts are in no common network, as when each address is a network of its own: the interface from which a route
// leads to the other host. Empty: there is none.
std::optional<Interface> routed_interface(std::span<const Interface> own, std::span<const Interface> other);

class Heartbeats {
 public:
  // Over this interface, or where it is empty one through which the hosts reach each other. Throws a usage error on all
  // ranks where a host has none of that name. Collective.
  Heartbeats(World& world, const Roster& roster, const std::string& interface);
  // Over this one of this host, if any. Collective.
  Heartbeats(World& world, const std::optional<Interface>& chosen);

  // -1: there is no way to other hosts.
  int descriptor() const { return socket_.get(); }
  // "eth0 (10.78.0.1)", or what is missing.
  const std::string& description() const { return description_; }

  // What cannot be sent now is lost.
  void send(const Datagram& datagram, int rank) const;
  // What has arrived from this job's ranks, without waiting; after a flood not all of it.
  std::vector<Datagram> receive() const;

 private:
  struct Address {
    std::uint32_t host = 0;  // 0: none
    std::uint16_t port = 0;
    friend bool operator==(const Address&, const Address&) = default;
  };

  std::string description_;
  Descriptor socket_;
  std::uint64_t nonce_ = 0;
  std::vector<Address> addresses_;  // by rank
};

}  // namespace tutti
