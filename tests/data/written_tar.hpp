#pragma once
// Tar archives as a test wants them, header by header.

#include "data/written_sets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace tutti::testing {

struct TarMember {
  std::string path;
  Bytes content{};
  char type = '0';
  std::string prefix{};  // before the path, as ustar has it
};

inline void put(Bytes& header, std::size_t offset, const std::string& text) {
  std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(offset));
}

// The sum of the header, where it belongs.
inline void sum_up(Bytes& header) {
  put(header, 148, std::string(8, ' '));
  const auto sum = std::accumulate(header.begin(), header.end(), 0U);
  put(header, 148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
}

inline Bytes tar_header(const TarMember& member) {
  Bytes header(512);
  put(header, 0, member.path);
  put(header, 100, "0000644");
  put(header, 124, fmt::format("{:011o}", member.content.size()));
  header[156] = static_cast<std::uint8_t>(member.type);
  put(header, 257, std::string("ustar\0", 6) + "00");
  put(header, 345, member.prefix);
  sum_up(header);
  return header;
}

inline Bytes tar_of(const std::vector<TarMember>& members) {
  Bytes bytes;
  for (const TarMember& member : members) {
    const Bytes header = tar_header(member);
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.insert(bytes.end(), member.content.begin(), member.content.end());
    bytes.resize((bytes.size() + 511) / 512 * 512);
  }
  bytes.resize(bytes.size() + 1024);
  return bytes;
}

inline Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace tutti::testing
