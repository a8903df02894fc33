#include "hdf5.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/array_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace tutti {
namespace hdf5 {
namespace {

using Text = std::array<char, 1024>;

// A callback from C code, which must not throw.
herr_t keep_first(unsigned position, const H5E_error2_t* error, void* kept) noexcept {
  if (position == 0 && error->desc != nullptr) {
    Text& text = *static_cast<Text*>(kept);
    const std::string_view from(error->desc);
    std::copy_n(from.begin(), std::min(from.size(), text.size() - 1), text.begin());
  }
  return 0;
}

std::string innermost_text() {
  Text text{};
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  if (text.front() == '\0') return "an error without a message";
  // For a failed read or write, keeps the action and the system's error text, without the addresses, sizes and times
  // that HDF5 adds.
  const std::string_view whole(text.data());
  constexpr std::string_view kReason = "error message = '";
  const auto reason = whole.find(kReason);
  const auto details = whole.find(": time = ");
  if (reason == whole.npos || details > reason) return std::string(whole);
  const std::string_view rest = whole.substr(reason + kReason.size());
  return std::string(whole.substr(0, details)) + ": " + std::string(rest.substr(0, rest.find('\'')));
}

}  // namespace

hid_t check(hid_t result, std::source_location where) {
  if (result < 0) throw Error(ErrorSource::hdf5, innermost_text(), where);
  return result;
}

herr_t check(herr_t result, std::source_location where) {
  check(hid_t{result}, where);
  return result;
}

std::unique_lock<std::recursive_mutex> lock_hdf5() {
  static std::recursive_mutex mutex;
  std::unique_lock lock(mutex);
  // If closing a file fails, for example on a full disk, HDF5 keeps its identifier and would access freed memory in its
  // exit handler. The handler is not needed, since all our handles are closed earlier.
  static const herr_t no_exit_handler = H5dont_atexit();
  static_cast<void>(no_exit_handler);  // fails if it was called before, with the same effect
  thread_local const herr_t no_traces = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  static_cast<void>(no_traces);
  return lock;
}

PropertiesHandle access_without_locks() {
  PropertiesHandle access(check(H5Pcreate(H5P_FILE_ACCESS)));
  check(H5Pset_file_locking(access.get(), /*use_file_locking=*/false, /*ignore_when_disabled=*/true));
  return access;
}

std::array<hsize_t, Shape::kMaxDims> extents_of(const Shape& shape) {
  std::array<hsize_t, Shape::kMaxDims> extents{};
  std::ranges::transform(shape.extents(), extents.begin(), [](std::int64_t e) { return static_cast<hsize_t>(e); });
  return extents;
}

SpaceHandle space_of(const Shape& shape) {
  if (shape.ndim() == 0) return SpaceHandle(check(H5Screate(H5S_SCALAR)));
  return SpaceHandle(check(H5Screate_simple(shape.ndim(), extents_of(shape).data(), nullptr)));
}

SpaceHandle rows_of(const DatasetHandle& dataset, std::int64_t first, const Shape& shape) {
  const std::array<hsize_t, Shape::kMaxDims> start{static_cast<hsize_t>(first)};
  SpaceHandle rows(check(H5Dget_space(dataset.get())));
  check(H5Sselect_hyperslab(rows.get(), H5S_SELECT_SET, start.data(), nullptr, extents_of(shape).data(), nullptr));
  return rows;
}

std::string new_memory_file_name() {
  static std::atomic<unsigned> files{0};
  return fmt::format("file {} in memory", files++);
}

}  // namespace hdf5

std::string array_library_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  const auto lock = hdf5::lock_hdf5();
  hdf5::check(H5get_libversion(&major, &minor, &release));
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace tutti
