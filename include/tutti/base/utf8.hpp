#pragma once
// Whether bytes are text as records, configuration files and messages have it, and how a terminal may be sent them.

#include <string>
#include <string_view>

namespace tutti {

bool is_utf8(std::string_view text);

// With control characters, and what turns the direction of writing, as \x1b, byte by byte, and so bytes that are no
// text: a name from a file must not move the cursor or forge a line. The characters in `kept` stay.
std::string printable(std::string_view text, std::string_view kept = {});

}  // namespace tutti
