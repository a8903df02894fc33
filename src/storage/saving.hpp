#pragma once
// Helpers for writing files: the loop around write(), and the error for a file that cannot be saved.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// Calls write() until all bytes are written or an error occurs. Returns the unwritten rest; errno holds the error.
std::span<const std::byte> write_all(int descriptor, std::span<const std::byte> bytes);

// Throws a save error with the path, the failed action, the system's error text and a remedy.
[[noreturn]] void fail_saving(const std::string& path, std::string_view action, int error);

}  // namespace tutti
