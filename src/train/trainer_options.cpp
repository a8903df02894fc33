#include "tutti/train/trainer_options.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace tutti {
namespace {

constexpr std::array<std::pair<std::string_view, Exchange>, 4> kExchanges{{{"ring", Exchange::ring},
                                                                           {"exact", Exchange::exact},
                                                                           {"sharded", Exchange::sharded},
                                                                           {"central", Exchange::central}}};

}  // namespace

Exchange parse_exchange(std::string_view word) {
  for (const auto& [name, exchange] : kExchanges) {
    if (name == word) return exchange;
  }
  throw Error(ErrorSource::usage,
              fmt::format("--exchange {}: must be one of auto, ring, exact, sharded, central", word));
}

std::string_view name_of(Exchange exchange) { return kExchanges.at(static_cast<std::size_t>(exchange)).first; }

OnNotFinite parse_on_not_finite(std::string_view text) {
  if (text == "stop") return OnNotFinite::stop;
  if (text == "skip") return OnNotFinite::skip;
  throw Error(ErrorSource::usage, fmt::format("--on-nonfinite {}: must be one of stop, skip", text));
}

}  // namespace tutti
