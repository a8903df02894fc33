#include "tutti/base/error.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"

#include "checkpoint_file.hpp"
#include "verification.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace tutti {
namespace {

// Damaged, and so not for HDF5 to try.
void refuse_marked(const std::string& path) {
  if (!path.ends_with(".bad")) return;
  throw Error(
      ErrorSource::checkpoint,
      fmt::format("'{}' was found damaged; to have it looked at again, take \".bad\" off its files' names", path));
}

}  // namespace

LoadedCheckpoint load_checkpoint(const std::string& path) {
  try {
    refuse_marked(path);
    std::error_code unknown;
    if (std::filesystem::exists(manifest_path(path), unknown) || unknown) {
      return {.state = state_of(read_checkpoint_bytes(path), path), .path = path, .verified = true};
    }
    return {.state = state_of(ArrayFile(path)), .path = path, .verified = false};
  } catch (const Error& error) {
    if (error.source() == ErrorSource::checkpoint) throw;
    throw Error(ErrorSource::checkpoint, error.what(), error.where());
  }
}

}  // namespace tutti
