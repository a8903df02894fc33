#pragma once
// What toml11 must not be given, since it does not refuse it in order: nested values are followed by recursion until
// the stack ends, dotted keys take quadratic time, and texts that are no UTF-8 make version 3 read beyond its memory.

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

struct TomlFault {
  std::int64_t line = 0;
  std::string_view why{};
};

// More brackets or dots than any sensible file has count as too deep; not those of comments and of texts, unless the
// file has texts of several lines, and not the brackets of headers such as [[layer]].
std::optional<TomlFault> fault_of_toml(std::string_view text);

}  // namespace tutti
