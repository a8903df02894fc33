#pragma once
// Replaces a file's content in place, as damage does, without the steps of write_atomically.

#include <cstddef>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>

namespace tutti {

inline void overwrite(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace tutti
