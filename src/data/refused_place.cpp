#include "refused_place.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/program_name.hpp"
#include "tutti/data/published_set.hpp"

#include "image_codec.hpp"
#include "image_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <span>
#include <system_error>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::uint8_t, 8> kHdf5Signature{0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};

[[noreturn]] void refuse(const std::string& words) { throw Error(ErrorSource::input, words); }

// How `data fetch` brings the set that has its place there; empty: none has.
std::string fetching_words(const fs::path& folder) {
  const fs::path whole = (fs::absolute(folder) / "").lexically_normal().parent_path();
  const std::string name = whole.filename().string();
  if (std::ranges::find(kFetchedNames, name) == kFetchedNames.end()) return {};
  const bool is_usual = whole.parent_path() == fs::absolute("data");
  const std::string to = is_usual ? "" : fmt::format(" --to {}", whole.parent_path().string());
  return fmt::format("{} data fetch {}{} brings it", program_call(), name, to);
}

}  // namespace

void refuse_folder(const fs::path& folder) {
  const FolderListing listing = list_folder(folder);
  const std::size_t images = listing.images.names.size();
  const std::string fetching = fetching_words(folder);
  if (images == 0 && listing.folders.empty() && listing.others.empty()) {
    refuse(fmt::format("'{}' is empty: {}", folder.string(),
                       fetching.empty() ? "put a folder of images for each class there" : fetching));
  }
  if (images > 0 && listing.folders.empty()) {
    refuse(
        fmt::format("'{}' holds {} image file{} but no class folders: move each class into a folder of its name, or "
                    "add labels.csv",
                    folder.string(), images, images == 1 ? "" : "s"));
  }
  refuse(
      fmt::format("'{}' holds no images that can be read{}: neither idx files (train-images-idx3-ubyte and "
                  "train-labels-idx1-ubyte) nor CIFAR batches (data_batch_*.bin), raw or .gz, nor folders of the "
                  "names of classes, here or in train/, with .jpg or .png files in them, nor such files with a table "
                  "labels.csv",
                  folder.string(), fetching.empty() ? "" : fmt::format(" ({})", fetching)));
}

void refuse_foreign_file(const std::string& path) {
  std::array<std::uint8_t, kHdf5Signature.size()> first{};
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) return;
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  file.read(reinterpret_cast<char*>(first.data()), first.size());
  if (file.bad() || first == kHdf5Signature) return;
  if (begins_as_image(std::span(first).first(static_cast<std::size_t>(file.gcount())))) {
    refuse(fmt::format("'{}' is an image; --data wants the folder that holds the class folders", path));
  }
  refuse(fmt::format("'{}' is no data set: give a folder, or an HDF5 file that {} data convert wrote", path,
                     program_call()));
}

}  // namespace tutti
