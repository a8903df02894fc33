#include "checkpoint_file.hpp"

#include "tutti/base/error.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/storage/array_file.hpp"

#include "digest_word.hpp"
#include "verification.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <span>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

constexpr std::int32_t kFormatVersion = 1;

template <class T>
void add_scalar(ArrayImage& image, const std::string& name, T value) {
  image.add(name, Shape{}, std::span<const T>(&value, 1));
}

template <class T>
T read_scalar(const ArrayFile& file, const std::string& name) {
  T value{};
  file.read(name, Shape{}, std::span<T>(&value, 1));
  return value;
}

// What no run can have reached; empty when all is well.
std::string impossibility(const TrainProgress& progress) {
  const LossSums& sums = progress.epoch_sums;
  const bool counts = progress.epoch >= 0 && progress.step_in_epoch >= 0 && progress.step >= 0 && sums.correct >= 0 &&
                      sums.samples >= 0 && sums.not_finite >= 0;
  if (!counts) return "a count in /progress is negative";
  if (progress.step_in_epoch > progress.step) {
    return fmt::format("/progress/step_in_epoch is {}, more than the {} steps in all", progress.step_in_epoch,
                       progress.step);
  }
  if (sums.correct > sums.samples) {
    return fmt::format("/progress/epoch_sums has {} correct of {} samples", sums.correct, sums.samples);
  }
  if (!std::isfinite(progress.epoch_seconds) || progress.epoch_seconds < 0) {
    return fmt::format("/progress/epoch_seconds is {}", progress.epoch_seconds);
  }
  return {};
}

void add_progress(ArrayImage& image, const TrainProgress& progress) {
  const LossSums& sums = progress.epoch_sums;
  const std::array<std::int64_t, LossSums::kFigures> figures{sums.loss_steps, sums.correct, sums.samples,
                                                             sums.not_finite};
  add_scalar(image, "/progress/epoch", progress.epoch);
  add_scalar(image, "/progress/step_in_epoch", progress.step_in_epoch);
  add_scalar(image, "/progress/step", progress.step);
  image.add("/progress/epoch_sums", Shape{LossSums::kFigures}, std::span<const std::int64_t>(figures));
  add_scalar(image, "/progress/epoch_seconds", progress.epoch_seconds);
}

TrainProgress read_progress(const ArrayFile& file) {
  std::array<std::int64_t, LossSums::kFigures> figures{};
  file.read("/progress/epoch_sums", Shape{LossSums::kFigures}, std::span<std::int64_t>(figures));
  const TrainProgress progress{.epoch = read_scalar<std::int64_t>(file, "/progress/epoch"),
                               .step_in_epoch = read_scalar<std::int64_t>(file, "/progress/step_in_epoch"),
                               .step = read_scalar<std::int64_t>(file, "/progress/step"),
                               .epoch_sums = {figures[0], figures[1], figures[2], figures[3]},
                               .epoch_seconds = read_scalar<double>(file, "/progress/epoch_seconds")};
  if (const std::string fault = impossibility(progress); !fault.empty()) {
    throw Error(ErrorSource::input, fmt::format("'{}': {}", file.path(), fault));
  }
  return progress;
}

void add_arrays(ArrayImage& image, const std::string& group, const std::vector<NamedArray>& arrays) {
  std::vector<std::reference_wrapper<const NamedArray>> sorted(arrays.begin(), arrays.end());
  std::ranges::sort(sorted, {}, &NamedArray::name);
  for (const NamedArray& array : sorted) {
    image.add(group + "/" + array.name, array.shape, std::span<const float>(array.values));
  }
}

std::vector<NamedArray> read_arrays(const ArrayFile& file, const std::string& group, std::int64_t file_bytes) {
  std::vector<NamedArray> arrays;
  for (const std::string& path : file.names(group)) {
    NamedArray array{.name = path.substr(group.size() + 1), .shape = file.shape(path), .values = {}};
    // Before any memory is asked for: a damaged extent may be as large as it likes.
    if (array.shape.elements() > file_bytes / static_cast<std::int64_t>(sizeof(float))) {
      throw Error(ErrorSource::input, fmt::format("'{}', array '{}': the shape {} is larger than the file", file.path(),
                                                  path, array.shape.text()));
    }
    array.values.resize(static_cast<std::size_t>(array.shape.elements()));
    file.read(path, array.shape, std::span<float>(array.values));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

std::uint64_t read_data_digest(const ArrayFile& file) {
  const auto digest = parse_digest(file.read_text("/run/data_digest"));
  if (!digest) {
    throw Error(ErrorSource::input, fmt::format("'{}': /run/data_digest is not 16 hexadecimal digits", file.path()));
  }
  return *digest;
}

// A manifest may be missing where somebody took the file alone; then there is nothing to hold it against.
void refuse_damage(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(manifest_path(path), ignored)) return;
  try {
    static_cast<void>(verified_manifest(path));
  } catch (const Error& error) {
    throw Error(ErrorSource::input, fmt::format("'{}': {}", path, error.what()));
  }
}

ArrayFile open_format(const std::string& path) {
  ArrayFile file(path);
  const auto version = read_scalar<std::int32_t>(file, "/format_version");
  if (version != kFormatVersion) {
    throw Error(ErrorSource::input,
                fmt::format("'{}' has format version {}; this program reads {}", path, version, kFormatVersion));
  }
  return file;
}

// Whatever is wrong with the file: for whoever wants to go on with it, there is no usable checkpoint.
template <class Action>
auto as_checkpoint(Action action) {
  try {
    return action();
  } catch (const Error& error) {
    throw Error(ErrorSource::checkpoint, fmt::format("no usable checkpoint: {}", error.what()), error.where());
  }
}

}  // namespace

std::vector<std::byte> checkpoint_image(const TrainState& state) {
  if (const std::string fault = impossibility(state.progress); !fault.empty()) {
    throw Error(ErrorSource::internal, fmt::format("a checkpoint is to be saved in which {}", fault));
  }
  ArrayImage image;
  add_scalar(image, "/format_version", kFormatVersion);
  add_arrays(image, "/parameters", state.parameters);
  add_arrays(image, "/statistics", state.statistics);
  add_arrays(image, "/optimizer", state.optimizer);
  add_arrays(image, "/exchange", state.exchange);
  add_progress(image, state.progress);
  image.add_text("/run/configuration", state.configuration);
  image.add_text("/run/model", state.model);
  image.add_text("/run/versions", state.versions);
  if (!state.choices.empty()) image.add_text("/run/choices", state.choices);
  image.add_text("/run/data_digest", digest_text(state.data_digest));
  return image.finish();
}

TrainProgress load_progress(const std::string& path) {
  return as_checkpoint([&] { return read_progress(open_format(path)); });
}

TrainState load_checkpoint(const std::string& path) {
  return as_checkpoint([&] {
    refuse_damage(path);
    const ArrayFile file = open_format(path);
    const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
    return TrainState{.progress = read_progress(file),
                      .parameters = read_arrays(file, "/parameters", bytes),
                      .statistics = read_arrays(file, "/statistics", bytes),
                      .optimizer = read_arrays(file, "/optimizer", bytes),
                      .exchange = read_arrays(file, "/exchange", bytes),
                      .configuration = file.read_text("/run/configuration"),
                      .model = file.read_text("/run/model"),
                      .versions = file.read_text("/run/versions"),
                      .choices = file.contains("/run/choices") ? file.read_text("/run/choices") : "",
                      .data_digest = read_data_digest(file)};
  });
}

}  // namespace tutti
