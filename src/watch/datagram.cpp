#include "datagram.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tutti {
namespace {

struct Head {
  std::uint32_t magic = 0x54545701;
  DatagramKind kind = DatagramKind::report;
  std::uint64_t nonce = 0;
  std::int32_t sender = 0;
  std::uint32_t states = 0;
};
static_assert(sizeof(Head) == 24 && sizeof(Head) + kMostStates * sizeof(RankState) <= kMostDatagram);

bool means_something(const RankState& state) {
  return state.phase <= Phase::ending && state.end <= RankEnd::signaled && state.activity <= Activity::gone &&
         std::isfinite(state.quiet_seconds);
}

}  // namespace

std::vector<std::vector<std::byte>> pack(const Datagram& datagram, std::uint64_t nonce) {
  std::vector<std::vector<std::byte>> packed;
  std::size_t first = 0;
  do {
    const std::size_t states = std::min(datagram.states.size() - first, kMostStates);
    const Head head{
        .kind = datagram.kind, .nonce = nonce, .sender = datagram.sender, .states = static_cast<std::uint32_t>(states)};
    auto& bytes = packed.emplace_back(sizeof head + states * sizeof(RankState));
    std::memcpy(bytes.data(), &head, sizeof head);
    if (states > 0) std::memcpy(&bytes[sizeof head], &datagram.states[first], states * sizeof(RankState));
    first += states;
  } while (first < datagram.states.size());
  return packed;
}

std::optional<Datagram> unpack(std::span<const std::byte> bytes, std::uint64_t nonce) {
  Head head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != Head{}.magic || head.nonce != nonce || head.kind > DatagramKind::ending) return std::nullopt;
  if (head.states > kMostStates || bytes.size() != sizeof head + head.states * sizeof(RankState)) return std::nullopt;
  Datagram datagram{.kind = head.kind, .sender = head.sender, .states = std::vector<RankState>(head.states)};
  if (head.states > 0) std::memcpy(datagram.states.data(), &bytes[sizeof head], head.states * sizeof(RankState));
  if (!std::ranges::all_of(datagram.states, means_something)) return std::nullopt;
  return datagram;
}

}  // namespace tutti
