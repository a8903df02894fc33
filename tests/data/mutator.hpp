#pragma once
// Damages files in ways that a number determines.

#include "tutti/base/random.hpp"

#include "data/written_sets.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace tutti::testing_support {

// The number of damaged files of a test: this many, or the value of TUTTI_MUTANTS.
inline std::uint32_t mutants(std::uint32_t by_default) {
  const char* wanted = std::getenv("TUTTI_MUTANTS");
  return wanted == nullptr ? by_default : static_cast<std::uint32_t>(std::stoul(wanted));
}

inline std::uint64_t word_at(const Bytes& bytes, std::size_t at) {
  return std::uint64_t{bytes[at]} << 24 | std::uint64_t{bytes[at + 1]} << 16 | std::uint64_t{bytes[at + 2]} << 8 |
         bytes[at + 3];
}

class Mutator {
 public:
  explicit Mutator(std::uint32_t number)
      : random_(4711, {.item = number, .purpose = random_purpose("hostile files")}) {}

  std::size_t below(std::size_t bound) { return random_.below(static_cast<std::uint32_t>(bound)); }
  bool once_in(std::size_t n) { return below(n) == 0; }

  void truncate(Bytes& bytes) { bytes.resize(below(bytes.size() + 1)); }
  void append(Bytes& bytes) { bytes.insert(bytes.end(), 1 + below(5000), static_cast<std::uint8_t>(below(256))); }
  void change_bytes(Bytes& bytes) {
    for (std::size_t left = 1 + below(3); left > 0 && !bytes.empty(); --left) {
      bytes[below(bytes.size())] = static_cast<std::uint8_t>(below(256));
    }
  }
  // One of the first aligned words.
  void change_word(Bytes& bytes, std::size_t words) { overwrite_word_at(bytes, 4 * below(words)); }
  // A size at any position, big-endian as in most formats.
  void change_size(Bytes& bytes) {
    if (bytes.size() >= 4) overwrite_word_at(bytes, below(bytes.size() - 3));
  }
  // Copies a piece to another position, overwriting or inserting.
  void splice(Bytes& bytes) {
    if (bytes.empty()) return;
    const std::size_t from = below(bytes.size());
    const Bytes piece(
        bytes.begin() + static_cast<std::ptrdiff_t>(from),
        bytes.begin() + static_cast<std::ptrdiff_t>(from + below(std::min<std::size_t>(200, bytes.size() - from)) + 1));
    const auto to = bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size()));
    if (once_in(2)) {
      bytes.insert(to, piece.begin(), piece.end());
    } else {
      std::copy_n(piece.begin(), std::min<std::ptrdiff_t>(std::ssize(piece), bytes.end() - to), to);
    }
  }
  void damage(Bytes& bytes) {
    switch (below(6)) {
      case 0:
        return truncate(bytes);
      case 1:
        return append(bytes);
      case 2:
        return change_size(bytes);
      case 3:
        return splice(bytes);
      default:
        return change_bytes(bytes);
    }
  }
  // The file as written: raw, packed, or packed and then damaged; returns whether the content is still complete.
  bool pack(Bytes& bytes) {
    if (once_in(2)) return true;
    bytes = gzipped(bytes);
    if (once_in(2)) return true;
    once_in(2) ? truncate(bytes) : change_bytes(bytes);
    return false;
  }

 private:
  void overwrite_word_at(Bytes& bytes, std::size_t at) {
    if (bytes.size() < at + 4) return;
    const auto old = static_cast<std::uint32_t>(word_at(bytes, at));
    const std::array<std::uint32_t, 10> values{
        0, 1, 2, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, old + 1, old - 1, std::uint32_t{1} << 20, random_.next()};
    Bytes word;
    append_word(word, values[below(values.size())]);
    std::copy(word.begin(), word.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
  }

  RandomSequence random_;
};

}  // namespace tutti::testing_support
