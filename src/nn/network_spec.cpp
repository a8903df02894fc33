#include "tutti/nn/network_spec.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti {

Initializer parse_initializer(std::string_view word) {
  for (const Initializer choice : {Initializer::normal, Initializer::xavier, Initializer::kaiming}) {
    if (word == name_of(choice)) return choice;
  }
  throw Error(ErrorSource::usage, fmt::format("'{}' is no initialiser: normal, xavier or kaiming", word));
}

std::string_view name_of(Initializer initializer) {
  switch (initializer) {
    case Initializer::normal:
      return "normal";
    case Initializer::xavier:
      return "xavier";
    case Initializer::kaiming:
      return "kaiming";
  }
  return "?";
}

}  // namespace tutti
