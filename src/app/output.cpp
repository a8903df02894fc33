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

std::string_view name_of(OwnFile kind) {
  switch (kind) {
    case OwnFile::data_set:
      return "a data set";
    case OwnFile::checkpoint:
      return "a checkpoint";
    case OwnFile::manifest:
      return "the manifest of a checkpoint";
    case OwnFile::of_run:
      return "a file of a run";
    case OwnFile::none:
      break;
  }
  return "a file";
}

}  // namespace

OwnFile kind_of_own_file(const std::string& path) {
  std::error_code absent;
  const fs::path file = fs::canonical(path, absent);
  if (absent || !fs::is_regular_file(file, absent)) return OwnFile::none;
  if (first_bytes(file, kHdf5Signature.size()) == kHdf5Signature) {
    try {
      check_seal(file);  // HDF5 may crash on a damaged file
      return ArrayFile(file).contains("/train/images") ? OwnFile::data_set : OwnFile::checkpoint;
    } catch (const Error&) {
      return OwnFile::checkpoint;
    }
  }
  if (first_bytes(file, kManifestStart.size()) == kManifestStart) return OwnFile::manifest;
  constexpr std::array kNames{"config.toml", "metrics.jsonl", "exit.json", "lock"};
  const bool is_named_so = std::ranges::find(kNames, file.filename().string()) != kNames.end();
  return is_named_so && fs::is_directory(checkpoints_folder(file.parent_path()), absent) ? OwnFile::of_run
                                                                                         : OwnFile::none;
}

void refuse_to_replace(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  const OwnFile found = kind_of_own_file(path);
  if (found == OwnFile::none) return;
  throw Error(ErrorSource::usage, fmt::format("{} {}: this would replace {}: choose another name, or remove the file",
                                              option, path, name_of(found)));
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
