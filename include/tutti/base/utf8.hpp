#pragma once
// Whether bytes are text as records, configuration files and messages have it.

#include <string_view>

namespace tutti {

bool is_utf8(std::string_view text);

}  // namespace tutti
