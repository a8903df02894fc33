#pragma once
// Under which name this program was started, for messages that say what to type.

#include <string>
#include <string_view>

namespace tutti {

// "trainer": its file's, without folders.
std::string program_name();
// As it is called: "./trainer", or "tutti" where it was found by its name alone.
std::string program_call();
std::string call_of(std::string_view path);  // the first word of a command line

}  // namespace tutti
