#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "image_codec.hpp"
#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 30;
constexpr std::int64_t kColour = 3;
// Number of files whose bytes are digested at every start, and that are decoded if not all are.
constexpr std::size_t kSampledFiles = 256;
// The headers of nearly all files are shorter than this.
constexpr std::size_t kHeaderBytes = std::size_t{1} << 16;

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
  if (const auto size = fs::file_size(path, unknown); !unknown && size > kMaxFileBytes) {
    throw Error(ErrorSource::input,
                fmt::format("the image '{}' has {} bytes, more than the {} that are read", path, size, kMaxFileBytes));
  }
  return read_file_bytes(path);
}

ImageFile image_in(std::span<const std::byte> bytes, const std::string& path, bool upright) {
  return {{reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, path, upright};
}

// The first bytes of a file, and whether it ends as a whole JPEG or PNG file does.
struct FileProbe {
  std::vector<std::byte> head;
  bool is_whole_file = false;
  bool has_end_marker = false;
};

FileProbe probe(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  FileProbe probed;
  const auto read = [&](std::size_t bytes) {
    std::vector<std::byte> bytes_read(bytes);
    file.read(reinterpret_cast<char*>(bytes_read.data()), static_cast<std::streamsize>(bytes));
    bytes_read.resize(static_cast<std::size_t>(file.gcount()));
    return bytes_read;
  };
  probed.head = read(kHeaderBytes);
  probed.is_whole_file = probed.head.size() < kHeaderBytes;
  constexpr std::array<unsigned char, 2> kEndOfJpeg{0xFF, 0xD9};
  constexpr std::array<unsigned char, 8> kEndOfPng{'I', 'E', 'N', 'D', 0xAE, 0x42, 0x60, 0x82};
  if (!probed.is_whole_file) file.seekg(-static_cast<std::streamoff>(kEndOfPng.size()), std::ios::end);
  const std::vector<std::byte> tail = probed.is_whole_file ? probed.head : read(kEndOfPng.size());
  const auto closes = [&](const auto& mark) {
    return tail.size() >= mark.size() &&
           std::memcmp(tail.data() + tail.size() - mark.size(), mark.data(), mark.size()) == 0;
  };
  probed.has_end_marker = (file.good() || probed.is_whole_file) && (closes(kEndOfJpeg) || closes(kEndOfPng));
  return probed;
}

// Whether the file with this index is in the sample.
bool is_sampled(std::size_t index, std::size_t files) {
  return files <= kSampledFiles || index * kSampledFiles / files != (index + 1) * kSampledFiles / files;
}

// Calls work(0) .. work(count - 1) in one thread per core; starts no further call once one has returned false.
void for_each_index(std::size_t count, const std::function<bool(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (std::jthread& thread : threads) {
    thread = std::jthread([&] {
      for (std::size_t i = next++; i < count; i = next++) {
        if (!work(i)) next = count;
      }
    });
  }
}

enum class Depth { header, header_and_end, whole_file };

// Returns the image's shape. Throws an error if the part of the file that `depth` covers is bad.
Shape check_file(const ImageFiles& files, std::size_t index, Depth depth) {
  const std::string path = (files.folder / files.names[index]).string();
  if (depth != Depth::whole_file) {
    // If anything is unusual about these parts, the whole file is read below.
    const FileProbe probed = probe(path);
    if (!probed.head.empty() && (probed.has_end_marker || depth == Depth::header)) {
      try {
        return image_shape(image_in(probed.head, path, files.upright));
      } catch (const std::exception&) {
        if (probed.is_whole_file) throw;
      }
    }
  }
  const auto bytes = read_bytes(path);
  const ImageFile image = image_in(bytes, path, files.upright);
  std::vector<std::uint8_t> pixels;
  if (depth != Depth::header) decode_image(image, kColour, pixels);
  return image_shape(image);
}

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

ImageFindings examine(const ImageFiles& files, Verification verification, bool find_bad) {
  const bool decodes_all = find_bad || verification == Verification::whole;
  const bool checks_all = decodes_all || verification == Verification::sample;
  std::mutex mutex;
  Shape image;
  std::vector<std::pair<std::size_t, std::string>> problems;
  for_each_index(files.names.size(), [&](std::size_t i) {
    const bool decodes = decodes_all || (checks_all && is_sampled(i, files.names.size()));
    const Depth depth = decodes ? Depth::whole_file : checks_all ? Depth::header_and_end : Depth::header;
    try {
      const Shape shape = check_file(files, i, depth);
      const std::lock_guard lock(mutex);
      if (image.ndim() == 0) image = shape;
      const bool has_same_size = image[1] == shape[1] && image[2] == shape[2];
      image = Shape{std::max(image[0], shape[0]), has_same_size ? shape[1] : 0, has_same_size ? shape[2] : 0};
      return checks_all || image[0] != kColour || has_same_size;
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      problems.emplace_back(i, error.what());
      return checks_all;
    }
  });
  std::ranges::sort(problems);
  if (!find_bad && !problems.empty()) {
    const std::string count = checks_all ? fmt::format("{} of {} images in '{}' cannot be read: first ",
                                                       problems.size(), files.names.size(), files.folder.string())
                                         : "";
    throw Error(ErrorSource::input,
                fmt::format("{}{}; --skip-bad-images leaves such files out", count, problems.front().second));
  }
  ImageFindings findings{.image = image, .bad = {}, .problems = {}};
  for (auto& [index, problem] : problems) {
    findings.bad.push_back(index);
    findings.problems.push_back(std::move(problem));
  }
  return findings;
}

// The digest is a sum over the files, so the order does not matter.
FileContents contents_of(const ImageFiles& files, bool whole) {
  FileContents contents;
  std::uint64_t of_all = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  for_each_index(files.names.size(), [&](std::size_t i) {
    const bool sampled = is_sampled(i, files.names.size());
    if (!sampled && !whole) return true;
    try {
      const auto bytes = read_bytes((files.folder / files.names[i]).string());
      const std::uint64_t of_file = mix64(hash64(files.names[i]) + crc32c(bytes));
      const std::lock_guard lock(mutex);
      of_all += of_file;
      if (sampled) contents.sample += of_file;
      if (sampled) ++contents.sampled;
      return true;
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      return false;
    }
  });
  if (failure != nullptr) std::rethrow_exception(failure);
  if (whole || contents.sampled == std::ssize(files.names)) contents.whole = of_all;
  return contents;
}

Shape read_image(const std::string& path, std::int64_t channels, bool upright, std::vector<std::uint8_t>& pixels) {
  const auto bytes = read_bytes(path);
  try {
    return decode_image(image_in(bytes, path, upright), channels, pixels);
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
