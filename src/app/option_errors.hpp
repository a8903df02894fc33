#pragma once
// Error messages for names and values in a command line or a file, with suggestions.

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// The replacement of an option or command of earlier versions, as a sentence without a period; empty for other names.
std::string_view moved_to(std::string_view written);
// The replacement, or "did you mean 'lenet'? See HELP", or "see HELP".
std::string suggestion_for(std::string_view written, const std::vector<std::string>& known, std::string_view help);

}  // namespace tutti
