#include "output.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/storage/seal.hpp"

#include "run_folder.hpp"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1A\n";

// Empty for a file that is shorter or cannot be read.
std::string first_bytes(const std::string& path, std::size_t count) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(count, '\0');
  return file.read(bytes.data(), static_cast<std::streamsize>(count)) ? bytes : "";
}

// What the file is if it holds what a run or a conversion took long to make; otherwise empty.
std::string_view kind_of_own_file(const std::string& path) {
  std::error_code absent;
  const fs::path file = fs::canonical(path, absent);
  if (absent || !is_plain_file(file)) return "";
  if (first_bytes(file, kHdf5Signature.size()) == kHdf5Signature) {
    try {
      check_seal(file);  // HDF5 may crash on a damaged file
      return ArrayFile(file).contains("/format") ? "a data set" : "a checkpoint";
    } catch (const Error&) {
      return "a checkpoint";
    }
  }
  if (first_bytes(file, kManifestStart.size()) == kManifestStart) return "the manifest of a checkpoint";
  constexpr std::array kNames{"config.toml", "metrics.jsonl", "exit.json", "lock"};
  const bool is_named_so = std::ranges::find(kNames, file.filename().string()) != kNames.end();
  return is_named_so && is_folder(checkpoints_folder(file.parent_path())) ? "a file of a run" : "";
}

}  // namespace

void refuse_to_replace(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  const std::string_view kind = kind_of_own_file(path);
  if (kind.empty()) return;
  throw Error(ErrorSource::usage,
              fmt::format("{} {}: this would replace {}: choose another name, or remove the file", option, path, kind));
}

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
