#include "cifar_reader.hpp"

#include "gz_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kSide = 32;
constexpr std::int64_t kImageBytes = kChannels * kSide * kSide;
constexpr std::int64_t kRecordBytes = 1 + kImageBytes;
constexpr std::size_t kRecordsAtOnce = 16;
constexpr std::size_t kMostNameBytes = 4096;

std::int64_t number_in(std::string_view text) {
  const auto first = std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  std::int64_t number = 0;
  std::from_chars(first, text.end(), number);
  return number;
}

void append_records(LabelledImages& all, GzFile& file, std::span<const std::uint8_t> records) {
  std::int64_t offset = file.offset() - static_cast<std::int64_t>(records.size());
  for (; !records.empty(); records = records.subspan(kRecordBytes), offset += kRecordBytes) {
    if (records.size() < kRecordBytes) {
      file.refuse(offset, fmt::format("a record has {} bytes, not {}", records.size(), kRecordBytes));
    }
    const int label = records[0];
    if (label >= kCifarClasses) {
      file.refuse(offset, fmt::format("label {} is not one of 0 .. {}", label, kCifarClasses - 1));
    }
    const auto pixels = records.subspan(1, kImageBytes);
    all.images.insert(all.images.end(), pixels.begin(), pixels.end());
    all.labels.push_back(label);
  }
}

}  // namespace

std::vector<std::filesystem::path> find_cifar_files(const std::filesystem::path& folder, std::string_view prefix) {
  std::map<std::pair<std::int64_t, std::string>, std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    const bool compressed = name.ends_with(".bin.gz");
    if (!name.starts_with(prefix) || !(compressed || name.ends_with(".bin"))) continue;
    if (compressed) name.resize(name.size() - std::string_view(".gz").size());
    auto& path = found[{number_in(std::string_view(name).substr(prefix.size())), name}];
    if (path.empty() || !compressed) path = entry.path();
  }
  std::vector<std::filesystem::path> files;
  for (auto& [key, path] : found) files.push_back(std::move(path));
  return files;
}

LabelledImages read_cifar(const std::vector<std::filesystem::path>& files) {
  LabelledImages all{Shape{kChannels, kSide, kSide}, {}, {}, {}};
  std::vector<std::uint8_t> buffer(kRecordsAtOnce * kRecordBytes);
  for (const auto& path : files) {
    GzFile file(path);
    if (file.is_raw()) {
      const std::int64_t pixels = file.most_bytes() / kRecordBytes * kImageBytes;
      all.images.reserve(all.images.size() + static_cast<std::size_t>(pixels));
    }
    while (const std::size_t got = file.read_some(buffer)) append_records(all, file, std::span(buffer).first(got));
    if (file.offset() == 0) file.refuse(0, "the file holds no records");
    all.label_files.push_back({path.string(), file.offset() / kRecordBytes});
  }
  all.images.shrink_to_fit();
  all.labels.shrink_to_fit();
  return all;
}

std::vector<std::string> read_cifar_class_names(const std::filesystem::path& folder) {
  const auto path = folder / "batches.meta.txt";
  if (!std::filesystem::exists(path)) return {};
  GzFile file(path);
  std::vector<std::uint8_t> text(kMostNameBytes);
  text.resize(file.read_some(text));
  std::vector<std::string> names(1);
  for (const std::uint8_t byte : text) {
    if (byte == '\n') {
      if (!names.back().empty()) names.emplace_back();
    } else if (byte != '\r') {
      names.back().push_back(static_cast<char>(byte));
    }
  }
  if (names.back().empty()) names.pop_back();
  if (names.size() != kCifarClasses) {
    file.refuse(0, fmt::format("there are {} class names, not {}", names.size(), kCifarClasses));
  }
  return names;
}

}  // namespace tutti
