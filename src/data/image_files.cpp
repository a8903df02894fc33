#include "image_files.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include "image_codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostFileBytes = std::uintmax_t{1} << 30;
constexpr std::int64_t kColour = 3;

std::string in_lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

bool is_image(const fs::path& path) {
  const std::string ending = in_lower_case(path.extension().string());
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

std::vector<std::byte> read_bytes(const std::string& path) {
  std::error_code unknown;
  if (const auto size = fs::file_size(path, unknown); !unknown && size > kMostFileBytes) {
    throw Error(ErrorSource::input,
                fmt::format("the image '{}' has {} bytes, more than the {} that are read", path, size, kMostFileBytes));
  }
  return read_whole(path);
}

ImageFile image_in(std::span<const std::byte> bytes, const std::string& path) {
  return {{reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, path};
}

// What the threads that examine files have found together.
class Examination {
 public:
  Examination(const ImageFiles& files, bool find_bad) : files_(files), find_bad_(find_bad) {}

  void work() {
    std::vector<std::uint8_t> pixels;
    for (std::size_t i = next_++; i < files_.names.size() && !settled_; i = next_++) {
      const std::string path = (files_.folder / files_.names[i]).string();
      try {
        const auto bytes = read_bytes(path);
        const Shape shape = image_shape(image_in(bytes, path));
        if (find_bad_) decode_image(image_in(bytes, path), kColour, pixels);
        note(shape);
      } catch (const std::exception& error) {
        note(i, error.what());
      }
    }
  }

  ImageFindings finish() {
    std::ranges::sort(problems_);
    if (!find_bad_ && !problems_.empty()) {
      throw Error(ErrorSource::input, problems_.front().second + "; --skip-bad-images leaves such files out");
    }
    ImageFindings findings;
    findings.image = image_;
    for (auto& [index, words] : problems_) {
      findings.bad.push_back(index);
      findings.problems.push_back(std::move(words));
    }
    return findings;
  }

 private:
  void note(const Shape& shape) {
    const std::lock_guard lock(mutex_);
    const bool is_first = image_.rank() == 0;
    const std::int64_t channels = is_first ? shape[0] : std::max(image_[0], shape[0]);
    const bool is_like_all = is_first || (image_[1] == shape[1] && image_[2] == shape[2]);
    image_ = is_like_all ? Shape{channels, shape[1], shape[2]} : Shape{channels, 0, 0};
    if (!find_bad_ && channels == kColour && !is_like_all) settled_ = true;
  }
  void note(std::size_t index, std::string words) {
    const std::lock_guard lock(mutex_);
    problems_.emplace_back(index, std::move(words));
    if (!find_bad_) settled_ = true;
  }

  const ImageFiles& files_;
  bool find_bad_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> settled_{false};
  std::mutex mutex_;
  Shape image_;
  std::vector<std::pair<std::size_t, std::string>> problems_;
};

}  // namespace

FolderListing list_folder(const fs::path& folder) {
  FolderListing listing;
  listing.images.folder = folder;
  std::vector<std::pair<std::string, std::int64_t>> images;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.')) continue;
    if (entry.is_directory()) {
      listing.folders.push_back(name);
    } else if (is_image(entry.path()) && entry.is_regular_file()) {
      images.emplace_back(name, static_cast<std::int64_t>(entry.file_size()));
    } else {
      listing.others.push_back(name);
    }
  }
  std::ranges::sort(images);
  std::ranges::sort(listing.folders);
  std::ranges::sort(listing.others);
  for (auto& [name, bytes] : images) {
    listing.images.names.push_back(std::move(name));
    listing.images.bytes.push_back(bytes);
  }
  return listing;
}

ImageFindings examine(const ImageFiles& files, bool find_bad) {
  Examination examination(files, find_bad);
  {
    std::vector<std::jthread> threads(std::max(1u, std::thread::hardware_concurrency()));
    for (std::jthread& thread : threads) thread = std::jthread([&] { examination.work(); });
  }
  return examination.finish();
}

Shape read_image(const std::string& path, std::int64_t channels, std::vector<std::uint8_t>& pixels) {
  const auto bytes = read_bytes(path);
  try {
    return decode_image(image_in(bytes, path), channels, pixels);
  } catch (const Error& error) {
    throw Error(ErrorSource::input, fmt::format("{}; --skip-bad-images leaves such files out", error.what()));
  }
}

std::uint64_t digest_of(const ImageFiles& files, std::span<const std::int32_t> labels) {
  std::vector<std::int64_t> hashes;
  for (std::size_t i = 0; i < files.names.size(); ++i) {
    hashes.push_back(
        static_cast<std::int64_t>(hash64(files.names[i]) ^ mix64(static_cast<std::uint64_t>(files.bytes[i]))));
  }
  return digest("files", std::span<const std::int64_t>(hashes)) + digest("labels", labels);
}

}  // namespace tutti
