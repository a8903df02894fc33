#include "check.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::hdf5 {
namespace {

using Text = std::array<char, 256>;

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
  return text.front() == '\0' ? std::string("an error without an explanation") : std::string(text.data());
}

}  // namespace

hid_t check(hid_t result, std::source_location where) {
  if (result < 0) throw Error(ErrorSource::hdf5, innermost_text(), where);
  return result;
}

herr_t check(herr_t result, std::source_location where) {
  if (result < 0) throw Error(ErrorSource::hdf5, innermost_text(), where);
  return result;
}

std::unique_lock<std::recursive_mutex> take_turn() {
  static std::recursive_mutex mutex;
  return std::unique_lock(mutex);
}

void silence_traces() { check(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr)); }

}  // namespace tutti::hdf5
