#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "image_codec.hpp"
#include "sources.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <fstream>
#include <functional>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kExtensions{".jpg", ".jpeg", ".png", ".tif", ".tiff"};
// Number of files whose bytes are digested at every start, and that are decoded if not all are.
constexpr std::size_t kSampledFiles = 256;
// The headers of nearly all files are shorter than this.
constexpr std::size_t kHeaderBytes = std::size_t{1} << 16;

template <class Bytes>
ImageFile image_in(const Bytes& bytes, const std::string& path, bool applies_exif) {
  return {{reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, path, applies_exif};
}

// The first bytes of a file, and whether it ends as a whole JPEG or PNG file does.
struct FileProbe {
  std::string head;
  bool is_whole_file = false;
  bool has_end_marker = false;
};

FileProbe probe(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto read = [&](std::size_t bytes) {
    std::string text(bytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(bytes));
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text;
  };
  constexpr std::string_view kEndOfJpeg = "\xFF\xD9";
  constexpr std::string_view kEndOfPng = "IEND\xAE\x42\x60\x82";
  FileProbe probed{.head = read(kHeaderBytes)};
  probed.is_whole_file = probed.head.size() < kHeaderBytes;
  file.clear();
  file.seekg(-static_cast<std::streamoff>(kEndOfPng.size()), std::ios::end);
  const std::string tail = read(kEndOfPng.size());
  probed.has_end_marker = tail.ends_with(kEndOfJpeg) || tail.ends_with(kEndOfPng);
  return probed;
}

// Calls work(0) .. work(count - 1) in one thread per core; starts no further call once one has returned false or
// thrown. Rethrows an exception.
void for_each_index(std::size_t count, const std::function<bool(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::vector<std::future<void>> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (auto& thread : threads) {
    thread = std::async(std::launch::async, [&] {
      for (std::size_t i = next++; i < count; i = next++) {
        try {
          if (!work(i)) next = count;
        } catch (...) {
          next = count;
          throw;
        }
      }
    });
  }
  for (auto& thread : threads) thread.get();
}

enum class Depth { header, header_and_end, whole_file };

// Returns the image's shape. Throws an error if the part of the file that `depth` covers is bad.
Shape check_file(const ImageFiles& files, std::size_t index, Depth depth) {
  const std::string path = files.path_of(index);
  if (depth != Depth::whole_file) {
    // If anything is unusual about these parts, the whole file is read below.
    const FileProbe probed = probe(path);
    if (!probed.head.empty() && (probed.has_end_marker || depth == Depth::header)) {
      try {
        return image_shape(image_in(probed.head, path, files.applies_exif));
      } catch (const std::exception&) {
        if (probed.is_whole_file) throw;
      }
    }
  }
  const auto bytes = read_image_bytes(path);
  const ImageFile image = image_in(bytes, path, files.applies_exif);
  std::vector<std::uint8_t> pixels;
  // The header of a TIFF file states where its other parts end, and is checked for that.
  const bool decodes = depth == Depth::whole_file || (depth == Depth::header_and_end && !is_tiff(image.bytes));
  if (decodes) decode_image(image, kColorChannels, pixels);
  return image_shape(image);
}

}  // namespace

bool has_image_extension(const fs::path& file) {
  const std::string extension = in_lower_case(file.extension().string());
  return std::ranges::find(kExtensions, extension) != kExtensions.end();
}

std::vector<std::byte> read_image_bytes(const std::string& path) {
  std::error_code unknown;
  if (const auto size = fs::file_size(path, unknown); !unknown && std::cmp_greater(size, kMaxImageFileBytes)) {
    throw Error(ErrorSource::input, fmt::format("the image '{}' has {} bytes, more than the {} that are read", path,
                                                size, kMaxImageFileBytes));
  }
  return read_file_bytes(path);
}

ImageFiles::File file_at(const fs::path& path, std::string name) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    throw fs::filesystem_error("stat", path, std::error_code(errno, std::generic_category()));
  }
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return {std::move(name), status.st_size, status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec};
}

FolderListing list_folder(const fs::path& folder) {
  FolderListing listing;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.')) continue;
    if (entry.is_directory()) {
      listing.folders.push_back(name);
    } else if (has_image_extension(entry.path()) && entry.is_regular_file()) {
      listing.images.push_back(file_at(entry.path(), name));
    } else {
      listing.others.push_back(name);
    }
  }
  std::ranges::sort(listing.images, {}, &ImageFiles::File::name);
  std::ranges::sort(listing.folders);
  std::ranges::sort(listing.others);
  return listing;
}

bool is_sampled(std::size_t index, std::size_t files) {
  return files <= kSampledFiles || index * kSampledFiles / files != (index + 1) * kSampledFiles / files;
}

ImageFindings examine_each(std::size_t files, const std::string& where, bool checks_all, bool find_bad,
                           const std::function<Shape(std::size_t)>& check) {
  std::mutex mutex;
  ImageFindings findings;
  for_each_index(files, [&](std::size_t i) {
    try {
      const Shape shape = check(i);
      const std::lock_guard lock(mutex);
      Shape& image = findings.image;
      if (image.ndim() == 0) image = shape;
      const bool has_same_size = image[1] == shape[1] && image[2] == shape[2];
      image = Shape{std::max(image[0], shape[0]), has_same_size ? shape[1] : 0, has_same_size ? shape[2] : 0};
      return checks_all || image[0] != kColorChannels || has_same_size;
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      findings.bad.emplace_back(i, error.what());
      return checks_all;
    }
  });
  std::ranges::sort(findings.bad);
  if (find_bad || findings.bad.empty()) return findings;
  const std::string how_many =
      checks_all ? fmt::format("{} of {} images in '{}' cannot be read: first ", findings.bad.size(), files, where)
                 : "";
  throw Error(ErrorSource::input,
              fmt::format("{}{}; --skip-bad-images leaves such files out", how_many, findings.bad.front().second));
}

ImageFindings examine(const ImageFiles& files, Verification verification, bool find_bad) {
  const bool decodes_all = verification == Verification::whole;
  const bool checks_all = decodes_all || verification == Verification::sample;
  const std::size_t count = files.files.size();
  return examine_each(count, files.folder.string(), checks_all, find_bad, [&](std::size_t i) {
    const bool decodes = decodes_all || (checks_all && is_sampled(i, count));
    return check_file(files, i, decodes ? Depth::whole_file : checks_all ? Depth::header_and_end : Depth::header);
  });
}

// The digest is a sum over the files, so the order does not matter.
FileContents contents_of(const LoadedSet& set, bool whole) {
  const std::size_t files = set.labels.size();
  FileContents contents;
  std::uint64_t of_all = 0;
  const auto add = [&](std::size_t i, std::uint32_t checksum) {
    const std::uint64_t of_file = mix64(hash64(name_of(set, i)) + checksum);
    of_all += of_file;
    if (!is_sampled(i, files)) return;
    contents.sample_digest += of_file;
    ++contents.sampled_files;
  };
  const auto* encoded = std::get_if<EncodedFiles>(&set.pixels);
  if (encoded != nullptr) {
    for (std::size_t i = 0; i < files; ++i) add(i, static_cast<std::uint32_t>(encoded->checksums[i]));
  } else {
    std::mutex mutex;
    for_each_index(files, [&](std::size_t i) {
      if (!whole && !is_sampled(i, files)) return true;
      const std::uint32_t checksum = crc32c(read_image_bytes(path_of(set, i)));
      const std::lock_guard lock(mutex);
      add(i, checksum);
      return true;
    });
  }
  if (whole || encoded != nullptr || contents.sampled_files == std::ssize(set.labels)) contents.whole = of_all;
  return contents;
}

}  // namespace tutti
