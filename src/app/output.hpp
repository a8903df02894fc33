#pragma once
// Work that rank 0 does for all ranks, and the formats in which commands print and write their results.

#include "tutti/base/shape.hpp"
#include "tutti/comm/world.hpp"

#include <fmt/format.h>
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace tutti {

// Runs `work` on rank 0 while the others wait. Its error is thrown on all ranks. Collective.
inline void on_rank_0(World& world, const std::function<void()>& work) {
  run_or_throw_on_all(world, [&] {
    if (world.rank() == 0) work();
  });
}

// Formats as one line. Bytes that are not UTF-8 are replaced.
std::string json_line(const nlohmann::ordered_json& json);
// Rank 0 writes the file that --json names, unless the path is empty. Collective.
void write_json(World& world, const std::string& path, const nlohmann::ordered_json& json);

// Throws a usage error if an output of that option would replace a file that holds what a run or a conversion took long
// to make. Does nothing without a path.
void refuse_to_replace(const std::string& option, const std::string& path);

// A number, or its digits, with a noun: "1 rank", "4 ranks".
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
