#include "tutti/train/safeguards.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti {

OnNotFinite parse_on_not_finite(const std::string& text) {
  if (text == "stop") return OnNotFinite::stop;
  if (text == "skip") return OnNotFinite::skip;
  throw Error(ErrorSource::usage, fmt::format("--on-nonfinite {}: must be one of stop, skip", text));
}

}  // namespace tutti
