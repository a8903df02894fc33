#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/train/optimizer.hpp"
#include "tutti/train/trainer_options.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {
namespace {

bool has_digits(std::string_view text, std::size_t min, std::size_t max) {
  return text.size() >= min && text.size() <= max && text.find_first_not_of("0123456789") == text.npos;
}

// 2, .5, 0.05 or 5e-2: without a sign, and with an exponent of one digit.
bool is_factor(std::string_view text) {
  const std::string_view number = text.substr(0, text.find('e'));
  if (number.size() < text.size()) {
    std::string_view exponent = text.substr(number.size() + 1);
    if (exponent.starts_with('-')) exponent.remove_prefix(1);
    if (!has_digits(exponent, 1, 1)) return false;
  }
  const auto point = number.find('.');
  if (point == number.npos) return has_digits(number, 1, 18);
  return has_digits(number.substr(0, point), 0, 9) && has_digits(number.substr(point + 1), 1, 9);
}

// PATTERN=FACTOR or PATTERN@EPOCHS=FACTOR; empty for any other text.
std::optional<ParameterFactor> parse_factor(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == text.npos || !is_factor(std::string_view(text).substr(equals + 1))) return std::nullopt;
  const std::string_view front = std::string_view(text).substr(0, equals);
  const std::string_view pattern = front.substr(0, front.find('@'));
  ParameterFactor factor{std::string(pattern), 0, std::stod(text.substr(equals + 1))};
  if (pattern.size() < front.size()) {
    const std::string_view epochs = front.substr(pattern.size() + 1);
    if (!has_digits(epochs, 1, 6)) return std::nullopt;
    factor.from_epoch = parse_number<std::int64_t>(epochs).value();
  }
  return pattern.empty() ? std::nullopt : std::optional(std::move(factor));
}

// `option` and its text are for messages. No regular expressions: the library matches long texts by recursion.
std::vector<ParameterFactor> parse_factors(const char* option, const std::string& text) {
  std::vector<ParameterFactor> factors;
  for (const std::string& part : split(text, ',')) {
    auto factor = parse_factor(part);
    if (!factor) {
      throw Error(ErrorSource::usage, fmt::format("--{} {}: give PATTERN=FACTOR of parameters or layers, from an epoch "
                                                  "on as PATTERN@EPOCHS=FACTOR, for example \"*/bias=2,conv1@3=0\"",
                                                  option, text));
    }
    factors.push_back(*std::move(factor));
  }
  return factors;
}

}  // namespace

std::vector<ParameterFactor> parse_lr_factors(const std::string& text) { return parse_factors("lr-factors", text); }

std::vector<ParameterFactor> parse_decay_factors(const std::string& text) {
  return parse_factors("decay-factors", text);
}

void validate(const OptimizerOptions& options) {
  const auto require = [](bool sensible, const char* option, double value, const char* range) {
    if (!sensible) throw Error(ErrorSource::usage, fmt::format("--{} {}: must be {}", option, value, range));
  };
  require(options.momentum >= 0 && options.momentum < 1, "momentum", options.momentum, "at least 0 and below 1");
  require(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight-decay", options.weight_decay,
          "0 or more, and finite");
  require(options.clip_norm >= 0 && std::isfinite(options.clip_norm), "clip-norm", options.clip_norm,
          "0 (no limit) or more, and finite");
  require(options.beta1 >= 0 && options.beta1 < 1, "adam-beta1", options.beta1, "at least 0 and below 1");
  require(options.beta2 >= 0 && options.beta2 < 1, "adam-beta2", options.beta2, "at least 0 and below 1");
  require(options.epsilon >= 1e-30 && options.epsilon <= 1, "adam-epsilon", options.epsilon, "1e-30 to 1");
  for (const ParameterFactor& each : options.decay_factors) {
    if (each.from_epoch == 0 && options.kind != OptimizerKind::lars) continue;
    throw Error(ErrorSource::usage,
                fmt::format("--decay-factors {}={}: weight decay has one factor in all epochs, and "
                            "in --optimizer lars none: leave {} out",
                            each.pattern, each.factor, each.from_epoch == 0 ? "the option" : "the epochs"));
  }
  const OptimizerOptions usual;
  const bool is_usual =
      options.beta1 == usual.beta1 && options.beta2 == usual.beta2 && options.epsilon == usual.epsilon;
  if (options.kind != OptimizerKind::adamw && !is_usual) {
    throw Error(ErrorSource::usage, fmt::format("--adam-beta1, --adam-beta2 and --adam-epsilon belong to adamw, but "
                                                "--optimizer is {}: leave them out",
                                                name_of(options.kind)));
  }
  if (options.nesterov && options.kind != OptimizerKind::sgd) {
    throw Error(
        ErrorSource::usage,
        fmt::format("--nesterov belongs to sgd, but --optimizer is {}: leave one of them out", name_of(options.kind)));
  }
  if (options.nesterov && options.momentum == 0) {
    throw Error(ErrorSource::usage, "--nesterov requires --momentum above 0");
  }
}

void validate(const AverageOptions& options) {
  if (!(options.decay >= 0 && options.decay < 1)) {
    throw Error(ErrorSource::usage,
                fmt::format("--ema {}: the decay must be at least 0 (no average) and below 1", options.decay));
  }
  if (options.lookahead > 0 && options.decay == 0) {
    throw Error(ErrorSource::usage, fmt::format("--lookahead {} needs --ema, the decay of its average for each step, "
                                                "for example 0.95",
                                                options.lookahead));
  }
}

}  // namespace tutti
