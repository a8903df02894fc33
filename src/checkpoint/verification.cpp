#include "verification.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/sha256.hpp"
#include "tutti/storage/whole_file.hpp"

#include "checkpoint_file.hpp"
#include "step_names.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestManifest = std::int64_t{1} << 26;

Error fault(const std::string& path, std::string_view text) {
  return Error(ErrorSource::checkpoint, fmt::format("'{}': {}", path, text));
}

std::int64_t size_of(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) throw fault(path, "it is missing");
  if (error) throw Error(ErrorSource::io, fmt::format("cannot read '{}': {}", path, error.message()));
  return static_cast<std::int64_t>(bytes);
}

std::string beside(const std::string& path, const std::string& name) {
  return fs::path(path).replace_filename(name).string();
}

Manifest parse(std::span<const std::byte> text, const std::string& path) {
  try {
    return parse_manifest(text);
  } catch (const Error& error) {
    throw Error(error.source(), fmt::format("'{}': {}", path, error.what()));
  }
}

// Its files are those that a save of its step makes, in this folder, and the first of them is the one asked for.
void refuse_other_names(const Manifest& manifest, const std::string& path) {
  bool alike = !manifest.files.empty() && fs::path(path).filename() == manifest.files.front().file;
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    alike &= manifest.files[i].file == image_name(manifest.step, static_cast<int>(i));
  }
  if (!alike) {
    throw fault(manifest_path(path), "it is that of another checkpoint: a checkpoint's files keep their names");
  }
}

std::vector<std::byte> read_proven(const ManifestFile& file, const std::string& path) {
  if (const std::int64_t bytes = size_of(path); bytes != file.bytes) {
    throw fault(path, fmt::format("it has {} bytes, its manifest says {}", bytes, file.bytes));
  }
  std::vector<std::byte> image;
  try {
    image = read_whole(path);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorSource::io, fmt::format("cannot read '{}': no memory for its {} bytes", path, file.bytes));
  }
  if (sha256_text(image) != file.sha256) throw fault(path, "it is damaged: its SHA-256 is not what its manifest says");
  return image;
}

void refuse_other_content(const TrainState& state, const Manifest& manifest, const std::string& path) {
  const auto refuse = [&](std::string_view what, const auto& held, const auto& told) {
    if (held == told) return;
    throw fault(path, fmt::format("it holds {} {}, its manifest says {}", what, held, told));
  };
  refuse("step", state.progress.step, manifest.step);
  refuse("epoch", state.progress.epoch, manifest.epoch);
  refuse("data of digest", digest_text(state.data_digest), digest_text(manifest.data_digest));
  refuse("weights of digest", digest_text(weights_digest(state)), digest_text(manifest.weights));
}

}  // namespace

Manifest manifest_of(const TrainState& state, const StoredImage& image, std::string sha256, FileShare share) {
  return {.step = state.progress.step,
          .epoch = state.progress.epoch,
          .weights = weights_digest(state),
          .data_digest = state.data_digest,
          .versions = state.versions,
          .files = {{.file = image_name(state.progress.step, share.file),
                     .bytes = static_cast<std::int64_t>(image.bytes.size()),
                     .sha256 = std::move(sha256),
                     .arrays = image.arrays}}};
}

std::string manifest_path(const std::string& checkpoint_path) {
  return fs::path(checkpoint_path).replace_extension(".json").string();
}

bool has_manifest(const std::string& checkpoint_path) {
  std::error_code unknown;
  return fs::exists(manifest_path(checkpoint_path), unknown) || unknown;
}

CheckpointBytes read_checkpoint_bytes(const std::string& checkpoint_path) {
  const std::string path = manifest_path(checkpoint_path);
  if (size_of(path) > kLargestManifest) throw fault(path, "it is too large for a manifest");
  CheckpointBytes bytes{.manifest = read_whole(path), .images = {}};
  const Manifest manifest = parse(bytes.manifest, path);
  refuse_other_names(manifest, checkpoint_path);
  for (const ManifestFile& file : manifest.files) {
    bytes.images.push_back(read_proven(file, beside(checkpoint_path, file.file)));
  }
  return bytes;
}

TrainState state_of(const CheckpointBytes& bytes, const std::string& checkpoint_path) {
  Manifest manifest = parse(bytes.manifest, manifest_path(checkpoint_path));
  if (manifest.files.size() != bytes.images.size()) {
    throw fault(checkpoint_path, fmt::format("{} files of {} are there", bytes.images.size(), manifest.files.size()));
  }
  try {
    std::vector<ImageArrays> images;
    for (std::size_t i = 0; i < bytes.images.size(); ++i) {
      ManifestFile& file = manifest.files[i];
      images.emplace_back(bytes.images[i], std::move(file.arrays), beside(checkpoint_path, file.file));
    }
    TrainState state = state_of(images);
    refuse_other_content(state, manifest, checkpoint_path);
    return state;
  } catch (const Error& error) {
    if (error.source() != ErrorSource::input) throw;
    throw Error(ErrorSource::checkpoint, error.what(), error.where());
  }
}

}  // namespace tutti
