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

// Called by C code, so it neither throws nor allocates.
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
  if (text.front() == '\0') return "an error without an explanation";
  // Of a failed read or write, what failed and the system's reason; HDF5 adds addresses, sizes and times.
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

std::unique_lock<std::recursive_mutex> take_turn() {
  static std::recursive_mutex mutex;
  std::unique_lock turn(mutex);
  // HDF5 keeps the identifier of a file whose closing failed, as on a full disk, and would follow it into freed memory
  // when it closes everything at the exit of the process. All our files are closed by their owners long before.
  static const herr_t no_exit_handler = H5dont_atexit();
  static_cast<void>(no_exit_handler);  // it fails where somebody asked for it before, to the same effect
  thread_local const herr_t no_traces = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  static_cast<void>(no_traces);
  return turn;
}

PropertiesHandle access_without_locks() {
  PropertiesHandle access(check(H5Pcreate(H5P_FILE_ACCESS)));
  check(H5Pset_file_locking(access.get(), /*use_file_locking=*/false, /*ignore_when_disabled=*/true));
  return access;
}

std::array<hsize_t, Shape::kMaxRank> extents_of(const Shape& shape) {
  std::array<hsize_t, Shape::kMaxRank> extents{};
  std::ranges::transform(shape.extents(), extents.begin(), [](std::int64_t e) { return static_cast<hsize_t>(e); });
  return extents;
}

SpaceHandle space_of(const Shape& shape) {
  if (shape.rank() == 0) return SpaceHandle(check(H5Screate(H5S_SCALAR)));
  return SpaceHandle(check(H5Screate_simple(shape.rank(), extents_of(shape).data(), nullptr)));
}

std::string new_image_name() {
  static std::atomic<unsigned> images{0};
  return fmt::format("image {} in memory", images++);
}

}  // namespace hdf5

std::string array_library_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  const auto turn = hdf5::take_turn();
  hdf5::check(H5get_libversion(&major, &minor, &release));
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace tutti
