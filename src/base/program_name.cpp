#include "tutti/base/program_name.hpp"

#include <cerrno>

namespace tutti {

std::string program_name() { return program_invocation_short_name; }

std::string program_call() { return call_of(program_invocation_name); }

std::string call_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string(path) : "./" + std::string(path.substr(slash + 1));
}

}  // namespace tutti
