#pragma once
// Writes tar archives for tests.

#include "data/written_sets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::testing_support {

struct TarEntry {
  std::string name;
  Bytes bytes;
  char type = '0';
};

inline void put(Bytes& block, std::size_t at, std::string_view text) {
  std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
}

// The header of an ustar archive, and the padded content.
inline void append_entry(Bytes& tar, const TarEntry& entry) {
  Bytes block(512);
  put(block, 0, std::string_view(entry.name).substr(0, 100));
  put(block, 100, "0000644");
  put(block, 124, fmt::format("{:011o}", entry.bytes.size()));
  put(block, 148, "        ");
  block[156] = static_cast<std::uint8_t>(entry.type);
  put(block, 257, std::string_view("ustar\00000", 8));
  int sum = 0;
  for (const std::uint8_t byte : block) sum += byte;
  put(block, 148, fmt::format("{:06o}", sum) + '\0');
  tar.insert(tar.end(), block.begin(), block.end());
  tar.insert(tar.end(), entry.bytes.begin(), entry.bytes.end());
  tar.resize((tar.size() + 511) / 512 * 512);
}

inline Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

enum class LongNames { gnu, pax };

// Names of more than 100 characters are written in the given way.
inline Bytes tar_of(const std::vector<TarEntry>& entries, LongNames long_names = LongNames::gnu) {
  Bytes tar;
  for (const TarEntry& entry : entries) {
    if (entry.name.size() > 100 && long_names == LongNames::gnu) {
      append_entry(tar, {"././@LongLink", bytes_of(entry.name + '\0'), 'L'});
    } else if (entry.name.size() > 100) {
      const std::string record = fmt::format("path={}\n", entry.name);
      append_entry(tar, {"pax", bytes_of(fmt::format("{} {}", record.size() + 4, record)), 'x'});
    }
    append_entry(tar, entry);
  }
  tar.resize(tar.size() + 1024);
  return tar;
}

}  // namespace tutti::testing_support
