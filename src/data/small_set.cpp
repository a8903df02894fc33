#include "tutti/data/small_set.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include "binary_formats.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace tutti {
namespace {

// The first so many of each class as CIFAR's records; fewer where there are no more.
std::vector<std::uint8_t> first_records(const LabelledImages& samples, int per_class) {
  const auto image_bytes = static_cast<std::size_t>(samples.image.elements());
  std::array<int, kCifarClasses> taken{};
  std::vector<std::uint8_t> records;
  for (std::size_t i = 0; i < samples.labels.size(); ++i) {
    const auto label = static_cast<std::size_t>(samples.labels[i]);
    if (taken[label] == per_class) continue;
    ++taken[label];
    records.push_back(static_cast<std::uint8_t>(label));
    const auto pixels = samples.images.begin() + static_cast<std::ptrdiff_t>(i * image_bytes);
    records.insert(records.end(), pixels, pixels + static_cast<std::ptrdiff_t>(image_bytes));
  }
  return records;
}

struct Selection {
  std::string from;
  std::string_view prefix;  // of the names of the batches
  int per_class = 0;
};

void write_records(const Selection& selection, const std::string& path) {
  const auto files = find_cifar_files(selection.from, selection.prefix);
  const LabelledImages samples = files.empty() ? LabelledImages{} : read_cifar(files);
  for (std::int32_t label = 0; label < kCifarClasses; ++label) {
    if (std::ranges::count(samples.labels, label) >= selection.per_class) continue;
    throw Error(ErrorSource::input,
                fmt::format("'{}' has fewer than {} images of class {} in its {}*.bin; fetch it anew", selection.from,
                            selection.per_class, label, selection.prefix));
  }
  const std::vector<std::uint8_t> records = first_records(samples, selection.per_class);
  write_whole(path, std::as_bytes(std::span(records)));
}

}  // namespace

void write_small_set(const SmallSet& set, const std::string& from, const std::string& to) {
  write_records({from, "data_batch", set.train_images_per_class}, to + "/data_batch_1.bin");
  write_records({from, "test_batch", set.test_images_per_class}, to + "/test_batch.bin");
  const std::string names = fmt::format("{}\n", fmt::join(read_cifar_class_names(from), "\n"));
  if (names.size() > 1) write_whole(to + "/batches.meta.txt", std::as_bytes(std::span(names)));
}

}  // namespace tutti
