#pragma once
// A count and its noun, as people write them: "1 rank", "4 ranks".

#include <fmt/format.h>

#include <string>

namespace tutti {

// A number, or the digits of one.
template <class Count>
std::string plural(const Count& count, const char* noun) {
  const std::string digits = fmt::format("{}", count);
  return fmt::format("{} {}{}", digits, noun, digits == "1" ? "" : "s");
}

}  // namespace tutti
