#pragma once
// What all that write files have in common: the loop around write(), and the words when a file cannot be saved.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// Writes all, in as many calls as it takes. Returns what an error has left unwritten; errno says why.
std::span<const std::byte> write_all(int descriptor, std::span<const std::byte> bytes);

// Throws a save error: path, what was being done, the error's text, and what to do about it.
[[noreturn]] void fail_saving(const std::string& path, std::string_view action, int error);

}  // namespace tutti
