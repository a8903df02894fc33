#include "checkpoint_file.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/storage/row_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

using LargeLosses = decltype(LossSums::large_losses);
constexpr const char* kDigests = "/run/digests";

std::string path_of(const ArrayGroup& group) { return fmt::format("/{}", group.name); }
std::string path_of(const ArrayGroup& group, const NamedArray& array) {
  return fmt::format("/{}/{}", group.name, array.name);
}

// What no run can have reached; empty when all is well.
std::string impossibility(const TrainProgress& progress) {
  const LossSums& sums = progress.epoch_sums;
  const BestTest& best = progress.best;
  const bool negative =
      std::ranges::any_of(std::array{progress.epoch, progress.step_in_epoch, progress.step, progress.skipped_steps,
                                     progress.samples_in_epoch, progress.carried_over, progress.planned_steps,
                                     sums.correct, sums.samples, best.correct, best.samples, progress.redone_steps},
                          [](std::int64_t count) { return count < 0; });
  if (negative) return "a count in /progress is negative";
  if (progress.skipped_steps > progress.step) {
    return fmt::format("/progress/skipped_steps is {}, more than the {} steps in all", progress.skipped_steps,
                       progress.step);
  }
  if (progress.step_in_epoch > progress.step) {
    return fmt::format("/progress/step_in_epoch is {}, more than the {} steps in all", progress.step_in_epoch,
                       progress.step);
  }
  if (progress.parts < 1) return fmt::format("/progress/parts is {}", progress.parts);
  if (sums.correct > sums.samples || best.correct > best.samples) {
    return fmt::format("/progress has {} correct of {} samples, and {} of {} at best", sums.correct, sums.samples,
                       best.correct, best.samples);
  }
  if (best.step < -1 || best.step > progress.step || (best.step == -1 && best.samples > 0)) {
    return fmt::format("/progress/best is of step {}, after {} steps in all", best.step, progress.step);
  }
  if (sums.not_finite != 0) return "/progress/epoch_sums has losses that are not finite";
  if (!std::isfinite(progress.epoch_seconds) || progress.epoch_seconds < 0) {
    return fmt::format("/progress/epoch_seconds is {}", progress.epoch_seconds);
  }
  if (!std::isfinite(progress.learning_rate)) {
    return fmt::format("/progress/learning_rate is {}", progress.learning_rate);
  }
  return {};
}

// The text of /run/digests.
class DigestList {
 public:
  // An array's own digest, the one that is printed while training, goes by its name without the group's.
  template <class T>
  void add(const std::string& path, std::span<const T> values) {
    digests_[path] = digest(std::string_view(path).substr(path.find('/', 1) + 1), values);
  }
  void add_text(const std::string& path, const std::string& text) {
    add(path, std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
  }

  void merge(DigestList others) { digests_.merge(others.digests_); }

  std::string text() const {
    std::string lines;
    for (const auto& [path, digest] : digests_) lines += line(digest, path);
    return lines + sum_line();
  }
  // The first array that these lines have not, or not so; empty when they are text().
  std::string first_fault(std::string_view lines) const {
    for (const auto& [path, digest] : digests_) {
      const std::string expected = line(digest, path);
      if (!lines.starts_with(expected)) return path;
      lines.remove_prefix(expected.size());
    }
    return lines == sum_line() ? std::string() : kDigests;
  }
  bool covers(std::vector<std::string> paths) const {
    std::erase(paths, kDigests);
    return std::ranges::equal(
        paths, digests_, {}, {}, [](const auto& digest) -> auto& { return digest.first; });
  }

 private:
  static std::string line(std::uint64_t digest, std::string_view name) {
    return fmt::format("{} {}\n", digest_text(digest), name);
  }
  std::string sum_line() const {
    std::uint64_t sum = 0;
    for (const auto& [path, digest] : digests_) sum += digest;
    return line(sum, "all");
  }

  std::map<std::string, std::uint64_t> digests_;
};

DigestList digests_of_arrays(const TrainState& state) {
  DigestList digests;
  for (const ArrayGroup& group : kArrayGroups) {
    for (const NamedArray& array : state.*group.arrays) {
      if (!is_finite(array)) {
        throw Error(ErrorSource::not_finite,
                    fmt::format("{} is no longer finite, and not worth saving", path_of(group, array)));
      }
      digests.add(path_of(group, array), std::span<const float>(array.values));
    }
  }
  return digests;
}

class ImageWriter {
 public:
  explicit ImageWriter(std::vector<std::byte> room) : image_(std::move(room)) {}

  template <class T>
  void add(const std::string& path, const Shape& shape, std::span<const T> values) {
    image_.add(path, shape, values);
    digests_.add(path, values);
  }
  template <class T>
  void add_scalar(const std::string& path, T value) {
    add(path, Shape{}, std::span<const T>(&value, 1));
  }
  void add_text(const std::string& path, const std::string& text) {
    image_.add_text(path, text);
    digests_.add_text(path, text);
  }
  // Their digests are found in another thread meanwhile.
  void add_arrays(const TrainState& state) {
    auto digests =
        std::async(std::launch::async | std::launch::deferred, [&state] { return digests_of_arrays(state); });
    for (const ArrayGroup& group : kArrayGroups) {
      const auto& arrays = state.*group.arrays;
      std::vector<std::reference_wrapper<const NamedArray>> sorted(arrays.begin(), arrays.end());
      std::ranges::sort(sorted, {}, &NamedArray::name);
      for (const NamedArray& array : sorted) {
        image_.add(path_of(group, array), array.shape, std::span<const float>(array.values));
      }
    }
    digests_.merge(digests.get());
  }
  StoredImage finish() {
    image_.add_text(kDigests, digests_.text());
    StoredImage image = image_.finish();
    add_seal(image);
    return image;
  }

 private:
  ArrayImage image_;
  DigestList digests_;
};

// Keeps the digests of what it has read.
class FileReader {
 public:
  explicit FileReader(const ArrayFile& source) : source_(source) {}

  template <class T, std::size_t kCount>
  std::array<T, kCount> read(const std::string& path, const Shape& shape) {
    std::array<T, kCount> values{};
    source_.read(path, shape, std::span<T>(values));
    digests_.add(path, std::span<const T>(values));
    return values;
  }
  template <class T, std::size_t kCount>
  std::array<T, kCount> read_if_there(const std::string& path, const Shape& shape) {
    return source_.contains(path) ? read<T, kCount>(path, shape) : std::array<T, kCount>{};
  }
  template <class T>
  T scalar(const std::string& path) {
    return read<T, 1>(path, Shape{}).front();
  }
  std::int64_t number(const std::string& path) { return scalar<std::int64_t>(path); }
  std::string text(const std::string& path) {
    std::string text = source_.read_text(path);
    digests_.add_text(path, text);
    return text;
  }
  std::int64_t number_if_there(const std::string& path) { return source_.contains(path) ? number(path) : 0; }
  std::string text_if_there(const std::string& path) { return source_.contains(path) ? text(path) : std::string(); }

  std::vector<NamedArray> arrays(const std::string& group) {
    std::vector<NamedArray> arrays;
    for (const std::string& path : source_.names(group)) {
      NamedArray array{.name = path.substr(group.size() + 1), .shape = source_.shape(path), .values = {}};
      // A damaged extent can be of any size: memory is asked for only within what the file can hold.
      if (array.shape.elements() > source_.bytes() / static_cast<std::int64_t>(sizeof(float))) {
        refuse(fmt::format("array '{}': the shape {} is larger than the file", path, array.shape.text()));
      }
      array.values.resize(static_cast<std::size_t>(array.shape.elements()));
      source_.read(path, array.shape, std::span<float>(array.values));
      if (!is_finite(array)) refuse(fmt::format("array '{}': a value is not finite", path));
      digests_.add(path, std::span<const float>(array.values));
      arrays.push_back(std::move(array));
    }
    return arrays;
  }

  // After all else.
  void check_digests() const {
    if (!digests_.covers(source_.names("/"))) refuse("it holds arrays that no checkpoint has");
    if (const std::string fault = digests_.first_fault(source_.read_text(kDigests)); !fault.empty()) {
      refuse(fmt::format("array '{}': its digest is not the one in {}", fault, kDigests));
    }
  }
  [[noreturn]] void refuse(const std::string& fault) const {
    throw Error(ErrorSource::input, fmt::format("'{}': {}", source_.path(), fault));
  }

 private:
  const ArrayFile& source_;
  DigestList digests_;
};

// Reserves the memory of an image beforehand, where running out of it is an exception: HDF5, which makes the image,
// crashes then, or fails in every later image.
std::vector<std::byte> with_room_for(const TrainState& state, std::vector<std::byte> room) {
  constexpr std::size_t kPerArray = 4 << 10;  // its name, its place in a group and its digest
  std::size_t arrays = 64;
  std::size_t bytes = state.configuration.size() + state.command_line.size() + state.model.size() +
                      state.versions.size() + state.choices.size() + state.data.size();
  for (const ArrayGroup& group : kArrayGroups) {
    for (const NamedArray& array : state.*group.arrays) bytes += std::span(array.values).size_bytes();
    arrays += (state.*group.arrays).size();
  }
  bytes += arrays * kPerArray;
  if (room.capacity() < bytes) room.clear();  // so that nothing is copied
  room.reserve(bytes);
  // HDF5's own memory. In small pieces, which stay with this process when they are freed.
  constexpr std::size_t kPieceBytes = 32 << 10;
  const std::size_t spare = (std::size_t{4} << 20) + arrays * 4 * kPerArray;
  std::vector<std::unique_ptr<std::byte[]>> pieces(spare / kPieceBytes);
  for (auto& piece : pieces) piece = std::make_unique_for_overwrite<std::byte[]>(kPieceBytes);
  return room;
}

void add_progress(ImageWriter& image, const TrainProgress& progress) {
  const LossSums& sums = progress.epoch_sums;
  image.add_scalar("/progress/epoch", progress.epoch);
  image.add_scalar("/progress/step_in_epoch", progress.step_in_epoch);
  image.add_scalar("/progress/step", progress.step);
  if (progress.skipped_steps > 0) image.add_scalar("/progress/skipped_steps", progress.skipped_steps);
  image.add_scalar("/progress/samples_in_epoch", progress.samples_in_epoch);
  image.add_scalar("/progress/carried_over", progress.carried_over);
  image.add_scalar("/progress/planned_steps", progress.planned_steps);
  image.add_scalar("/progress/learning_rate", progress.learning_rate);
  image.add_scalar("/progress/seed", progress.seed);
  image.add_scalar("/progress/parts", progress.parts);
  const std::array figures{sums.loss_quanta, sums.correct, sums.samples, sums.not_finite};
  image.add("/progress/epoch_sums", Shape{std::ssize(figures)}, std::span<const std::int64_t>(figures));
  const std::span<const std::int64_t> large(sums.large_losses);
  if (sums.large_losses != LargeLosses{}) image.add("/progress/epoch_large_losses", Shape{std::ssize(large)}, large);
  if (progress.redone_steps > 0) image.add_scalar("/progress/redone_steps", progress.redone_steps);
  image.add_scalar("/progress/epoch_seconds", progress.epoch_seconds);
  const std::array best{progress.best.step, progress.best.correct, progress.best.samples};
  image.add("/progress/best", Shape{std::ssize(best)}, std::span<const std::int64_t>(best));
}

TrainProgress read_progress(FileReader& file) {
  const auto sums = file.read<std::int64_t, 4>("/progress/epoch_sums", {4});
  const auto large = file.read_if_there<std::int64_t, std::tuple_size_v<LargeLosses>>("/progress/epoch_large_losses",
                                                                                      {std::tuple_size_v<LargeLosses>});
  const auto best = file.read<std::int64_t, 3>("/progress/best", {3});
  const TrainProgress progress{.epoch = file.number("/progress/epoch"),
                               .step_in_epoch = file.number("/progress/step_in_epoch"),
                               .step = file.number("/progress/step"),
                               .skipped_steps = file.number_if_there("/progress/skipped_steps"),
                               .samples_in_epoch = file.number("/progress/samples_in_epoch"),
                               .carried_over = file.number("/progress/carried_over"),
                               .planned_steps = file.number("/progress/planned_steps"),
                               .learning_rate = file.scalar<double>("/progress/learning_rate"),
                               .seed = file.number("/progress/seed"),
                               .parts = file.number("/progress/parts"),
                               .epoch_sums = {sums[0], sums[1], sums[2], sums[3], large},
                               .redone_steps = file.number_if_there("/progress/redone_steps"),
                               .epoch_seconds = file.scalar<double>("/progress/epoch_seconds"),
                               .best = {best[0], best[1], best[2]}};
  if (const std::string fault = impossibility(progress); !fault.empty()) file.refuse(fault);
  return progress;
}

TrainState read_state(const ArrayFile& source) {
  FileReader file(source);
  if (const std::string fault = fault_of_format(file.scalar<std::int32_t>("/format_version")); !fault.empty()) {
    file.refuse("it " + fault);
  }
  TrainState state;
  state.progress = read_progress(file);
  for (const ArrayGroup& group : kArrayGroups) state.*group.arrays = file.arrays(path_of(group));
  state.configuration = file.text("/run/configuration");
  state.command_line = file.text("/run/command_line");
  state.model = file.text("/run/model");
  state.versions = file.text("/run/versions");
  state.choices = file.text_if_there("/run/choices");
  state.data = file.text_if_there("/run/data");
  const auto data_digest = parse_digest(file.text("/run/data_digest"));
  if (!data_digest) file.refuse("/run/data_digest is not 16 hexadecimal digits");
  state.data_digest = *data_digest;
  file.check_digests();
  return state;
}

// By what every file holds besides arrays, but for the words of each rank's own start, processor and clock.
bool are_of_one_state(const TrainState& a, const TrainState& b) {
  TrainProgress progress = a.progress;
  progress.epoch_seconds = b.progress.epoch_seconds;
  return progress == b.progress && a.model == b.model && a.data_digest == b.data_digest;
}

}  // namespace

bool is_finite(const NamedArray& array) {
  constexpr std::int32_t kInfinity = 0x7f800000;
  std::int32_t greatest = 0;  // by the bits without the sign: the compiler compares several at once
  for (const float value : array.values) {
    greatest = std::max(greatest, std::bit_cast<std::int32_t>(value) & 0x7fffffff);
  }
  return greatest < kInfinity;
}

std::string fault_of_format(std::int64_t version) {
  if (version == kCheckpointFormat) return {};
  const char* remedy = version < kCheckpointFormat
                           ? "go on with the version of this program that wrote it, or start anew in another folder"
                           : "use a newer version of this program";
  return fmt::format("has format {}, this program reads {}: {}", version, kCheckpointFormat, remedy);
}

StoredImage checkpoint_image(const TrainState& state, std::vector<std::byte> room) {
  if (const std::string fault = impossibility(state.progress); !fault.empty()) {
    throw Error(ErrorSource::internal, fmt::format("a checkpoint is to be saved in which {}", fault));
  }
  ImageWriter image(with_room_for(state, std::move(room)));
  image.add_scalar("/format_version", kCheckpointFormat);
  image.add_arrays(state);
  add_progress(image, state.progress);
  image.add_text("/run/configuration", state.configuration);
  image.add_text("/run/command_line", state.command_line);
  image.add_text("/run/model", state.model);
  image.add_text("/run/versions", state.versions);
  if (!state.choices.empty()) image.add_text("/run/choices", state.choices);
  if (!state.data.empty()) image.add_text("/run/data", state.data);
  image.add_text("/run/data_digest", digest_text(state.data_digest));
  return image.finish();
}

TrainState state_of(std::span<const ArrayFile> files) {
  if (files.empty()) throw Error(ErrorSource::input, "a checkpoint of no files");
  TrainState whole = read_state(files.front());
  for (const ArrayFile& file : files.subspan(1)) {
    TrainState more = read_state(file);
    if (!are_of_one_state(more, whole)) {
      throw Error(ErrorSource::input,
                  fmt::format("'{}' and '{}' are not of one checkpoint", file.path(), files.front().path()));
    }
    for (const ArrayGroup& group : kArrayGroups) {
      std::ranges::move(more.*group.arrays, std::back_inserter(whole.*group.arrays));
    }
  }
  for (const ArrayGroup& group : kArrayGroups) {
    std::ranges::sort(whole.*group.arrays, {}, &NamedArray::name);
    const auto twin = std::ranges::adjacent_find(whole.*group.arrays, {}, &NamedArray::name);
    if (twin != (whole.*group.arrays).end()) {
      throw Error(ErrorSource::input, fmt::format("'{}': '/{}/{}' is in several of the checkpoint's files",
                                                  files.front().path(), group.name, twin->name));
    }
  }
  return whole;
}

std::uint64_t weights_digest(const TrainState& state) {
  std::uint64_t sum = 0;
  for (const NamedArray& array : state.parameters) sum += digest(array.name, std::span<const float>(array.values));
  return sum;
}

}  // namespace tutti
