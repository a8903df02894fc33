#pragma once
// Every fuzz target checks that a parser accepts any bytes, or refuses them with an Error of the documented sources.
// Any other exception, and every crash, is a finding.

#include "tutti/base/error.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tutti::fuzz {

using Input = std::span<const std::uint8_t>;

[[noreturn]] inline void report(std::string_view finding) {
  std::cerr << finding << '\n';
  std::abort();
}

// Returns whether the input was accepted.
template <class Action>
bool takes(std::initializer_list<ErrorSource> refusals, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    if (std::ranges::find(refusals, error.source()) == refusals.end()) report("refused as: " + error.describe());
    return false;
  }
  return true;
}

inline std::string text_of(Input input) { return {input.begin(), input.end()}; }

// Removes the first byte from `input` and returns it, or 0.
inline std::uint8_t take_byte(Input& input) {
  if (input.empty()) return 0;
  const std::uint8_t byte = input.front();
  input = input.subspan(1);
  return byte;
}

// Removes a piece from the front, whose length the first two bytes give, at most the rest.
inline Input take_part(Input& input) {
  const std::size_t high = take_byte(input);
  const std::size_t length = high << 8 | take_byte(input);
  const Input part = input.first(std::min(length, input.size()));
  input = input.subspan(part.size());
  return part;
}

// A file in memory for readers that need a path.
class MemoryFile {
 public:
  MemoryFile()
      : descriptor_(::memfd_create("input", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(descriptor_)) {
    if (descriptor_ < 0) throw std::runtime_error("no file in memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  const std::string& path() const { return path_; }
  void hold(Input bytes) const {
    if (::ftruncate(descriptor_, 0) != 0 ||
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("cannot fill the file in memory");
    }
  }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace tutti::fuzz
