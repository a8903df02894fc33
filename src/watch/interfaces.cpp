#include "interfaces.hpp"

#include "tutti/base/descriptor.hpp"
#include "tutti/base/error.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>

namespace tutti {
namespace {

std::uint32_t ipv4_of(const sockaddr& address) {
  sockaddr_in internet{};
  std::memcpy(&internet, &address, sizeof internet);
  return ntohl(internet.sin_addr.s_addr);
}

// Of what this host would send there, though nothing is sent; 0: it has no way.
std::uint32_t source_towards(std::uint32_t host) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(9);  // any
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (!socket || ::connect(socket.get(), generic, length) != 0) return 0;
  return ::getsockname(socket.get(), generic, &length) == 0 ? ntohl(address.sin_addr.s_addr) : 0;
}

// Null where the host has no address there.
const Interface* find_in(const std::vector<Interface>& host, const Interface& wanted) {
  const auto found = std::ranges::find_if(host, [&](const Interface& interface) {
    return interface.mask == wanted.mask && interface.network() == wanted.network();
  });
  return found == host.end() ? nullptr : &*found;
}

}  // namespace

std::vector<Interface> usable_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || entry->ifa_netmask == nullptr) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || ipv4_of(*entry->ifa_addr) >> 24 == IN_LOOPBACKNET) continue;
    found.push_back(
        {.name = entry->ifa_name, .address = ipv4_of(*entry->ifa_addr), .mask = ipv4_of(*entry->ifa_netmask)});
  }
  return found;
}

std::vector<Interface> chosen_interfaces(const std::string& name) {
  std::vector<Interface> all = usable_interfaces();
  if (name.empty()) return all;
  const auto chosen = std::ranges::find(all, name, &Interface::name);
  if (chosen != all.end()) return {*chosen};
  std::vector<std::string> names;
  for (const Interface& interface : all) names.push_back(interface.name);
  throw Error(ErrorSource::usage,
              fmt::format("--watch-interface {}: this host has none of that name that is up, with an "
                          "IPv4 address that others reach; choose from [{}], or leave it out",
                          name, fmt::join(names, ", ")));
}

std::string address_text(std::uint32_t address) {
  return fmt::format("{}.{}.{}.{}", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255);
}

std::string text_of(std::span<const Interface> interfaces) {
  std::string text;
  for (const Interface& interface : interfaces) {
    text += fmt::format("{} {} {}\n", interface.name, interface.address, interface.mask);
  }
  return text;
}

std::vector<Interface> interfaces_of(const std::string& text) {
  std::vector<Interface> interfaces;
  std::istringstream words(text);
  for (Interface next; words >> next.name >> next.address >> next.mask;) interfaces.push_back(next);
  return interfaces;
}

std::optional<Interface> shared_interface(std::span<const std::vector<Interface>> hosts, std::size_t own_host) {
  for (const Interface& candidate : hosts.front()) {
    std::set<std::uint32_t> addresses;  // bridges to containers have the same one on every host
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

}  // namespace tutti
