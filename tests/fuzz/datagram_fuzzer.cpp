// Datagrams that monitors receive from other hosts, and the views that they update.

#include "watch/job_view.hpp"

#include <algorithm>
#include <cstdint>

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Roster roster{.hosts = {{"a", {0, 2}}, {"b", {1}}}, .host_of_rank = {0, 1, 0}};
  Datagram datagram;
  std::copy_n(data, std::min(size, sizeof datagram), reinterpret_cast<std::uint8_t*>(&datagram));
  if (!datagram.is_valid(size, 0)) return 0;
  JobView view(roster, 0, 0);
  if (datagram.sender >= 0 && datagram.sender < 3) view.record(datagram, 1);  // others are dropped on arrival
  view.refresh(2, 1);
  return 0;
}
