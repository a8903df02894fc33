#include "output.hpp"

#include "tutti/storage/atomic_file.hpp"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string json_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void write_json(World& world, const std::string& path, const Json& json) {
  on_rank_0(world, [&] {
    if (path.empty()) return;
    const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    write_atomically(path, std::as_bytes(std::span(text)));
  });
}

std::string index_text(const Shape& shape, std::int64_t element) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.ndim()));
  for (int axis = shape.ndim() - 1; axis >= 0; --axis) {
    index[static_cast<std::size_t>(axis)] = element % shape[axis];
    element /= shape[axis];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

}  // namespace tutti
