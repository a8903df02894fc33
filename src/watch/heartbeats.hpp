#pragma once
// Datagrams between the watch threads of different hosts: each rank's UDP socket, and the choice of the network
// interface that it is bound to.

#include "tutti/base/unique_handle.hpp"
#include "tutti/comm/world.hpp"

#include "job_view.hpp"

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// IPv4, in host byte order. Sent between ranks as raw bytes.
struct Interface {
  char name[16] = {};
  std::uint32_t address = 0;
  std::uint32_t mask = 0;

  std::uint32_t network() const { return address & mask; }
};

// The interfaces that are up and have an address that other hosts can reach, or only the one of this name. Throws a
// usage error if there is none of that name.
std::vector<Interface> chosen_interfaces(const std::string& name);

// This host's interface in the first of the first host's networks in which all hosts have distinct addresses. Empty:
// there is no such network.
std::optional<Interface> shared_interface(std::span<const std::vector<Interface>> hosts, std::size_t own_host);
// For hosts without a common network, for example with /32 addresses: the interface from which a route leads to the
// other host. Empty: there is no route.
std::optional<Interface> routed_interface(std::span<const Interface> own, std::span<const Interface> other);

class Heartbeats {
 public:
  // Uses the interface of this name, or if empty one through which the hosts reach each other. Throws a usage error on
  // all ranks if a host has none of that name. Collective.
  Heartbeats(World& world, const Roster& roster, const std::string& interface);
  // Uses this host's given interface, if any. Collective.
  Heartbeats(World& world, const std::optional<Interface>& chosen);

  // -1: other hosts cannot be reached.
  int descriptor() const { return socket_.get(); }
  // "eth0 (10.78.0.1)", or a text that says that no network was found.
  const std::string& description() const { return description_; }

  // Sends one datagram, or as many as the states need. Never blocks; a datagram that cannot be sent immediately is
  // dropped.
  void send(DatagramKind kind, std::span<const RankState> states, int rank) const;
  // Returns datagrams that have arrived from this job's ranks, a bounded number per call. Never blocks.
  std::vector<Datagram> receive() const;

 private:
  std::string description_;
  Descriptor socket_;
  std::uint64_t nonce_ = 0;
  std::int32_t own_rank_;
  std::vector<sockaddr_in> addresses_;  // by rank; port 0: none
};

}  // namespace tutti
