#pragma once
// The datagrams' way between hosts: a socket of every rank's watch thread.

#include "tutti/base/descriptor.hpp"
#include "tutti/comm/world.hpp"

#include "datagram.hpp"
#include "interfaces.hpp"
#include "roster.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

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
  // What has come from this job's ranks, without waiting; after a flood not all of it.
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
