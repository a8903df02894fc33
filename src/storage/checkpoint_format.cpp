#include "checkpoint_format.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>

namespace tutti {
namespace {

constexpr const char* kDigests = "/run/digests";

std::string path_of(const ArrayGroup& group) { return fmt::format("/{}", group.name); }
std::string path_of(const ArrayGroup& group, const NamedArray& array) {
  return fmt::format("/{}/{}", group.name, array.name);
}

// Why no run can have this progress; empty if it is valid.
std::string progress_error(const TrainProgress& progress) {
  const TrainSums& sums = progress.epoch_sums;
  const BestTest& best = progress.best;
  const bool negative = std::ranges::any_of(
      std::array{progress.epoch, progress.step_in_epoch, progress.step, progress.skipped_steps,
                 progress.samples_in_epoch, progress.carried_over, progress.planned_steps, sums.correct, sums.samples,
                 best.correct, best.samples, progress.redone_steps, progress.tests_since_best},
      [](std::int64_t count) { return count < 0; });
  if (negative) return "a count in /progress is negative";
  for (const auto& [name, steps] :
       {std::pair("skipped_steps", progress.skipped_steps), std::pair("step_in_epoch", progress.step_in_epoch)}) {
    if (steps <= progress.step) continue;
    return fmt::format("/progress/{} is {}, more than the {} steps of the run", name, steps, progress.step);
  }
  if (progress.parts < 1) return fmt::format("/progress/parts is {}", progress.parts);
  if (sums.correct > sums.samples || best.correct > best.samples) {
    return fmt::format("/progress has {} correct of {} samples, and {} of {} at best", sums.correct, sums.samples,
                       best.correct, best.samples);
  }
  if (best.step < -1 || best.step > progress.step || (best.step == -1 && best.samples > 0)) {
    return fmt::format("/progress/best is of step {}, but the run has {} steps", best.step, progress.step);
  }
  if (sums.not_finite != 0) return "/progress/epoch_sums has losses that are not finite";
  if (!std::isfinite(sums.weight) || sums.weight < 0) return fmt::format("/progress/epoch_weight is {}", sums.weight);
  if (!std::isfinite(progress.epoch_seconds) || progress.epoch_seconds < 0) {
    return fmt::format("/progress/epoch_seconds is {}", progress.epoch_seconds);
  }
  if (!std::isfinite(progress.learning_rate)) {
    return fmt::format("/progress/learning_rate is {}", progress.learning_rate);
  }
  return {};
}

// The elements of a field: a number, an array of numbers, or a text.
template <class T>
auto elements_of(T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return std::span<T>(&value, 1);
  } else if constexpr (std::is_same_v<std::remove_const_t<T>, std::string>) {
    return std::span(reinterpret_cast<const std::uint8_t*>(value.data()), value.size());
  } else {
    return std::span<std::remove_reference_t<decltype(value[0])>>(value);
  }
}
template <class T>
Shape shape_of(const T& value) {
  return std::is_arithmetic_v<T> ? Shape{} : Shape{std::ssize(elements_of(value))};
}

// The text of /run/digests.
class DigestList {
 public:
  // An array's digest, as printed during training, depends on its name without the group.
  template <class T>
  void add(const std::string& path, std::span<T> values) {
    digests_[path] = digest(std::string_view(path).substr(path.find('/', 1) + 1), std::span<const T>(values));
  }

  void merge(DigestList others) { digests_.merge(others.digests_); }

  std::string text() const {
    std::string lines;
    std::uint64_t sum = 0;
    for (const auto& [path, digest] : digests_) {
      lines += line(digest, path);
      sum += digest;
    }
    return lines + line(sum, "all");
  }
  // The first array whose digest is missing or different in `lines`; empty if `lines` equals text().
  std::string first_fault(std::string_view lines) const {
    if (lines == text()) return {};
    const auto found = std::ranges::find_if(
        digests_, [&](const auto& digest) { return lines.find(line(digest.second, digest.first)) == lines.npos; });
    return found == digests_.end() ? kDigests : found->first;
  }
  bool covers(std::vector<std::string> paths) const {
    std::erase(paths, kDigests);
    return std::ranges::equal(paths, digests_, {}, {}, &std::pair<const std::string, std::uint64_t>::first);
  }

 private:
  static std::string line(std::uint64_t digest, std::string_view name) {
    return fmt::format("{} {}\n", digest_text(digest), name);
  }

  std::map<std::string, std::uint64_t> digests_;
};

DigestList digests_of_arrays(const TrainState& state) {
  DigestList digests;
  for (const ArrayGroup& group : kArrayGroups) {
    for (const NamedArray& array : state.*group.arrays) {
      if (!is_finite(array)) {
        throw Error(ErrorSource::not_finite,
                    fmt::format("{} is no longer finite, so it is not saved", path_of(group, array)));
      }
      digests.add(path_of(group, array), std::span(array.values));
    }
  }
  return digests;
}

// Visitors for all_fields(): one writes the fields of a checkpoint to a file, the other reads them.

class CheckpointFieldWriter {
 public:
  explicit CheckpointFieldWriter(std::vector<std::byte> buffer) : file_(std::move(buffer)) {}

  template <class T>
  void field(const std::string& path, const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      file_.add_text(path, value);
    } else {
      file_.add(path, shape_of(value), elements_of(value));
    }
    digests_.add(path, elements_of(value));
  }
  // A default value is not written.
  template <class T>
  void optional(const std::string& path, const T& value) {
    if (value != T{}) field(path, value);
  }
  // Another thread computes the digests at the same time.
  void arrays(const TrainState& state) {
    auto digests =
        std::async(std::launch::async | std::launch::deferred, [&state] { return digests_of_arrays(state); });
    for (const ArrayGroup& group : kArrayGroups) {
      const auto& arrays = state.*group.arrays;
      std::vector<std::reference_wrapper<const NamedArray>> sorted(arrays.begin(), arrays.end());
      std::ranges::sort(sorted, {}, &NamedArray::name);
      for (const NamedArray& array : sorted) file_.add(path_of(group, array), array.shape, array.values);
    }
    digests_.merge(digests.get());
  }

  std::vector<std::byte> finish() {
    file_.add_text(kDigests, digests_.text());
    return file_.finish();
  }

 private:
  MemoryFileWriter file_;
  DigestList digests_;
};

// Also collects the digests of the values that it reads.
class CheckpointFieldReader {
 public:
  explicit CheckpointFieldReader(const ArrayFile& source) : source_(source) {}

  template <class T>
  void field(const std::string& path, T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      value = source_.read_text(path);
    } else {
      source_.read(path, shape_of(value), elements_of(value));
    }
    digests_.add(path, elements_of(value));
  }
  template <class T>
  void optional(const std::string& path, T& value) {
    if (source_.contains(path)) field(path, value);
  }
  void arrays(TrainState& state) {
    for (const ArrayGroup& group : kArrayGroups) {
      for (const std::string& path : source_.names(path_of(group))) {
        NamedArray array{.name = path.substr(path_of(group).size() + 1), .shape = source_.shape(path), .values = {}};
        // A damaged extent can have any value, so memory is allocated only up to the size of the file.
        if (array.shape.elements() > source_.bytes() / static_cast<std::int64_t>(sizeof(float))) {
          refuse(fmt::format("array '{}': the shape {} is larger than the file", path, array.shape.text()));
        }
        array.values.resize(static_cast<std::size_t>(array.shape.elements()));
        source_.read(path, array.shape, array.values);
        digests_.add(path, std::span(array.values));
        if (!is_finite(array)) refuse(fmt::format("array '{}': a value is not finite", path));
        (state.*group.arrays).push_back(std::move(array));
      }
    }
  }

  // Call this after reading all fields.
  void check_digests() const {
    if (!digests_.covers(source_.names("/"))) refuse("it contains arrays that do not belong to a checkpoint");
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

// Visits all fields in file order. `File` reads or writes them.
template <class File, class State>
void all_fields(File& file, State& state) {
  auto& progress = state.progress;
  auto& sums = progress.epoch_sums;
  auto& best = progress.best;
  std::array epoch_sums{sums.loss_quanta, sums.correct, sums.samples, sums.not_finite};
  std::array best_test{best.step, best.correct, best.samples};
  std::string data_digest = digest_text(state.data_digest);
  file.arrays(state);
  file.field("/progress/epoch", progress.epoch);
  file.field("/progress/step_in_epoch", progress.step_in_epoch);
  file.field("/progress/step", progress.step);
  file.optional("/progress/skipped_steps", progress.skipped_steps);
  file.field("/progress/samples_in_epoch", progress.samples_in_epoch);
  file.field("/progress/carried_over", progress.carried_over);
  file.field("/progress/planned_steps", progress.planned_steps);
  file.field("/progress/learning_rate", progress.learning_rate);
  file.field("/progress/seed", progress.seed);
  file.field("/progress/parts", progress.parts);
  file.field("/progress/epoch_sums", epoch_sums);
  file.optional("/progress/epoch_large_losses", sums.large_losses);
  file.optional("/progress/epoch_weight", sums.weight);
  file.optional("/progress/redone_steps", progress.redone_steps);
  file.field("/progress/epoch_seconds", progress.epoch_seconds);
  file.field("/progress/best", best_test);
  file.optional("/progress/tests_since_best", progress.tests_since_best);
  file.field("/run/configuration", state.configuration);
  file.field("/run/command_line", state.command_line);
  file.field("/run/model", state.model);
  file.field("/run/versions", state.versions);
  file.optional("/run/choices", state.choices);
  file.optional("/run/data", state.data);
  file.field("/run/data_digest", data_digest);
  if constexpr (!std::is_const_v<State>) {
    sums = {{epoch_sums[0], epoch_sums[1], epoch_sums[2], epoch_sums[3], sums.large_losses}, sums.weight};
    best = {best_test[0], best_test[1], best_test[2]};
    const auto digest = parse_digest(data_digest);
    if (!digest) file.refuse("/run/data_digest is not 16 hexadecimal digits");
    state.data_digest = *digest;
  }
}

// Reserves memory for a checkpoint file, so that running out of memory throws here: within HDF5 it would crash, or make
// every later file fail.
std::vector<std::byte> reserve_buffer(const TrainState& state, std::vector<std::byte> buffer) {
  constexpr std::size_t kPerArray = 4 << 10;  // for its name, its link in a group and its digest
  std::size_t arrays = 64;
  std::size_t bytes = state.configuration.size() + state.command_line.size() + state.model.size() +
                      state.versions.size() + state.choices.size() + state.data.size();
  for (const ArrayGroup& group : kArrayGroups) {
    for (const NamedArray& array : state.*group.arrays) bytes += std::span(array.values).size_bytes();
    arrays += (state.*group.arrays).size();
  }
  bytes += arrays * kPerArray;
  if (buffer.capacity() < bytes) buffer.clear();  // avoids copying
  buffer.reserve(bytes);
  // This much memory for HDF5 itself. Small blocks stay in the process's heap when they are freed.
  constexpr std::size_t kPieceBytes = 32 << 10;
  const std::size_t spare = (std::size_t{4} << 20) + arrays * 4 * kPerArray;
  std::vector<std::unique_ptr<std::byte[]>> pieces(spare / kPieceBytes);
  for (auto& piece : pieces) piece = std::make_unique_for_overwrite<std::byte[]>(kPieceBytes);
  return buffer;
}

TrainState read_state(const ArrayFile& source) {
  CheckpointFieldReader file(source);
  std::int32_t version = 0;
  file.field("/format_version", version);
  if (const std::string fault = fault_of_format(version); !fault.empty()) file.refuse("it " + fault);
  TrainState state;
  all_fields(file, state);
  if (const std::string fault = progress_error(state.progress); !fault.empty()) file.refuse(fault);
  file.check_digests();
  return state;
}

// Compares the fields that must be equal in all files of one checkpoint.
bool are_of_one_state(const TrainState& a, const TrainState& b) {
  TrainProgress progress = a.progress;
  progress.epoch_seconds = b.progress.epoch_seconds;
  return progress == b.progress && a.model == b.model && a.data_digest == b.data_digest;
}

}  // namespace

bool is_finite(const NamedArray& array) {
  constexpr std::int32_t kInfinity = 0x7f800000;
  std::int32_t max = 0;  // of the bits without the sign, which the compiler can vectorise
  for (const float value : array.values) {
    max = std::max(max, std::bit_cast<std::int32_t>(value) & 0x7fffffff);
  }
  return max < kInfinity;
}

void use_averages(TrainState& state) {
  for (NamedArray& average : std::exchange(state.averages, {})) {
    for (auto* const arrays : {&state.parameters, &state.statistics}) {
      const auto found = std::ranges::find(*arrays, average.name, &NamedArray::name);
      if (found != arrays->end()) *found = std::move(average);
    }
  }
}

std::string fault_of_format(std::int64_t version, std::int64_t newest) {
  if (version >= kCheckpointFormat && version <= newest) return {};
  const char* remedy = version < kCheckpointFormat
                           ? "resume with the version of this program that wrote it, or start a new run in another "
                             "folder"
                           : "use a newer version of this program";
  return fmt::format("has format {}, this program reads {}{}: {}", version, kCheckpointFormat,
                     newest == kCheckpointFormat ? "" : fmt::format(" and {}", newest), remedy);
}

std::vector<std::byte> checkpoint_file_bytes(const TrainState& state, std::vector<std::byte> buffer) {
  if (const std::string fault = progress_error(state.progress); !fault.empty()) {
    throw Error(ErrorSource::internal, fmt::format("cannot save a checkpoint in which {}", fault));
  }
  CheckpointFieldWriter file(reserve_buffer(state, std::move(buffer)));
  file.field("/format_version", kCheckpointFormat);
  all_fields(file, state);
  return file.finish();
}

TrainState state_of(std::span<const ArrayFile> files) {
  if (files.empty()) throw Error(ErrorSource::input, "the checkpoint has no files");
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
      throw Error(ErrorSource::input, fmt::format("'{}': '/{}/{}' is in more than one of the checkpoint's files",
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
