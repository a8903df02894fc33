#pragma once
// The network that the hosts' watchers talk over: which interface of this host has an address in it.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Of IPv4, in the host's byte order.
struct Interface {
  std::string name;
  std::uint32_t address = 0;
  std::uint32_t mask = 0;

  std::uint32_t network() const { return address & mask; }
};

// Those that are up, at addresses that are not this host's alone.
std::vector<Interface> usable_interfaces();
// All of those, or the one of this name. Throws a usage error where there is none of that name.
std::vector<Interface> chosen_interfaces(const std::string& name);
std::string address_text(std::uint32_t address);

// As words between ranks: name, address and mask, one line each.
std::string text_of(std::span<const Interface> interfaces);
std::vector<Interface> interfaces_of(const std::string& text);

// Of the first host's interfaces, the first whose network all hosts share at addresses of their own; this host's
// interface there. Empty: there is none.
std::optional<Interface> shared_interface(std::span<const std::vector<Interface>> hosts, std::size_t own_host);
// Where hosts share no network, as when each address is one of its own: the one from which a route leads to the other
// host. Empty: there is none.
std::optional<Interface> routed_interface(std::span<const Interface> own, std::span<const Interface> other);

}  // namespace tutti
