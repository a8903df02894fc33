#pragma once
// A count and its noun, as people write them: "1 rank", "4 ranks".

#include <fmt/format.h>

#include <concepts>
#include <string>

namespace tutti {

std::string several(std::integral auto count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace tutti
