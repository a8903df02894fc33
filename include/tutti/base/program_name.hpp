#pragma once
// Under which name this program was started, for messages that say what to type.

#include <string>

namespace tutti {

// "trainer": its file's, without folders.
std::string program_name();
// As it was called: "./trainer", or "tutti" where it was found by its name alone.
std::string program_call();

}  // namespace tutti
