#include "tutti/base/program_name.hpp"

#include <cerrno>

namespace tutti {

std::string program_name() { return program_invocation_short_name; }

std::string program_call() { return program_invocation_name; }

}  // namespace tutti
