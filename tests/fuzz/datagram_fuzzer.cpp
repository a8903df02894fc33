// Datagrams that monitors receive from other hosts, and the views that they update.

#include "fuzz/parsed_input.hpp"
#include "watch/job_view.hpp"

#include <cstring>

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Roster roster{.hosts = {{"a", {0, 2}}, {"b", {1}}}, .host_of_rank = {0, 1, 0}};
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto datagram = unpack(bytes, 0);
  if (!datagram) return 0;
  const auto again = pack(*datagram, 0);
  if (again.size() != 1 || !std::ranges::equal(again.front(), bytes)) fuzz::report("packed otherwise than it came");
  JobView view(roster, 0, 0);
  if (datagram->sender >= 0 && datagram->sender < 3) view.record(*datagram, 1);  // others are dropped on arrival
  view.refresh(2, 1);
  return 0;
}
