#pragma once
// Tutti's own version, from the build's one place.

#include <string_view>

namespace tutti {

std::string_view version() noexcept;

}  // namespace tutti
