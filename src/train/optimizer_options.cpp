#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/train/optimizer.hpp"
#include "tutti/train/trainer_options.hpp"

#include <fmt/format.h>

#include <cmath>
#include <regex>
#include <string>
#include <vector>

namespace tutti {
namespace {

// `option` and its text are for messages.
std::vector<ParameterFactor> parse_factors(const char* option, const std::string& text) {
  static const std::regex form(R"(([^,=@]+)(?:@(\d{1,6}))?=(\d{0,9}\.?\d{1,9}(?:e-?\d)?))");
  std::vector<ParameterFactor> factors;
  for (const std::string& part : split(text, ',')) {
    std::smatch groups;
    if (!std::regex_match(part, groups, form)) {
      throw Error(ErrorSource::usage, fmt::format("--{} {}: give PATTERN=FACTOR of parameters or layers, from an epoch "
                                                  "on as PATTERN@EPOCHS=FACTOR, for example \"*/bias=2,conv1@3=0\"",
                                                  option, text));
    }
    factors.push_back({groups[1], groups[2].matched ? std::stoll(groups[2]) : 0, std::stod(groups[3])});
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
