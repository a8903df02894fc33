#include "verification.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace tutti {
namespace {

namespace fs = std::filesystem;

Error fault(const std::string& text) { return Error(ErrorSource::checkpoint, text); }

}  // namespace

std::string manifest_path(const std::string& checkpoint_path) {
  return fs::path(checkpoint_path).replace_extension(".json").string();
}

Manifest verified_manifest(const std::string& checkpoint_path) {
  const std::string beside = manifest_path(checkpoint_path);
  std::error_code ignored;
  if (!fs::exists(beside, ignored)) throw fault("it has no manifest: saving it was cut short");
  const Manifest manifest = parse_manifest(read_whole(beside));
  if (manifest.file != fs::path(checkpoint_path).filename()) {
    throw fault("its manifest is that of another checkpoint");
  }
  const std::vector<std::byte> image = read_whole(checkpoint_path);
  if (static_cast<std::int64_t>(image.size()) != manifest.bytes) {
    throw fault(fmt::format("it has {} bytes, its manifest says {}", image.size(), manifest.bytes));
  }
  if (image_digest(image) != manifest.digest) throw fault("its digest is not what its manifest says");
  return manifest;
}

}  // namespace tutti
