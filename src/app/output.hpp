#pragma once
// What rank 0 does alone for all ranks, and the forms in which commands print and write their results.

#include "tutti/base/shape.hpp"
#include "tutti/comm/world.hpp"

#include <fmt/format.h>
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace tutti {

// Does `work` on rank 0 while the others wait. What it throws is thrown on all. Collective.
inline void on_rank_0(World& world, const std::function<void()>& work) {
  run_agreed(world, [&] {
    if (world.rank() == 0) work();
  });
}

// In one line. Bytes that are no UTF-8 are replaced.
std::string json_line(const nlohmann::ordered_json& json);
// Rank 0 writes the file that --json names; with an empty path, nothing. Collective.
void write_json(World& world, const std::string& path, const nlohmann::ordered_json& json);

// A number, or the digits of one, and its noun: "1 rank", "4 ranks".
template <class Count>
std::string plural(const Count& count, const char* noun) {
  const std::string digits = fmt::format("{}", count);
  return fmt::format("{} {}{}", digits, noun, digits == "1" ? "" : "s");
}

template <class Count>
double mebi(Count bytes) {
  return static_cast<double>(bytes) / 0x1p20;
}

// The position of an element in a tensor: "[3, 0, 1, 1]".
std::string index_text(const Shape& shape, std::int64_t element);

}  // namespace tutti
