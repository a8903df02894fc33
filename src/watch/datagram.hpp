#pragma once
// What watchers of different hosts send each other: datagrams of one version of this program on machines of one kind.
//
//   bytes 0-3    magic, with the version in its last byte
//   bytes 4-7    kind
//   bytes 8-15   nonce of the job
//   bytes 16-19  the sender's rank
//   bytes 20-23  states that follow
//   then         RankState, so many times
//
// Whatever does not fit this to the last byte is dropped.

#include "rank_state.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

enum class DatagramKind : std::uint32_t {
  report,  // of the sender's host
  heard,   // the answer to it
  ending,  // the job is ended
};

struct Datagram {
  DatagramKind kind = DatagramKind::report;
  std::int32_t sender = 0;
  std::vector<RankState> states{};
};

constexpr std::size_t kMostStates = 24;      // in one datagram, which stays below
constexpr std::size_t kMostDatagram = 1400;  // bytes, so that no usual network cuts it up

// In as many datagrams as it takes.
std::vector<std::vector<std::byte>> pack(const Datagram& datagram, std::uint64_t nonce);
// Empty for what is of another job, version or size, or means nothing.
std::optional<Datagram> unpack(std::span<const std::byte> bytes, std::uint64_t nonce);

}  // namespace tutti
