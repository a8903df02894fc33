#include "options.hpp"

#include "../output.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

namespace tutti {
namespace {

// Fewer samples per part make the statistics of batch norm noisy.
constexpr std::int64_t kFewSamples = 16;
constexpr std::int64_t kTooFewSamples = 4;

}  // namespace

Findings check_image_size(const DatasetInfo& train, const Shape& input) {
  Findings findings;
  if (!train.has_short_side || train.image == input) return findings;
  const std::int64_t stored = std::min(train.image[1], train.image[2]);
  if (input[1] > stored) {
    findings.warn(
        "--image-size {} enlarges the images of {}, which are {} x {}: convert the pictures again with "
        "--image-size {} or more, or train at {}",
        input[1], train.name, train.image[1], train.image[2], input[1], stored);
  } else if (!*train.has_short_side) {
    findings.warn(
        "the images of {} may have been cropped when an earlier version converted them, and --image-size {} "
        "crops them once more, unlike the pictures that predict gets: convert the pictures again",
        train.name, input[1]);
  }
  return findings;
}

Findings check_classes(const DatasetInfo& train) {
  Findings findings;
  constexpr std::size_t kMaxNamed = 5;
  std::vector<std::string> empty;
  for (std::size_t label = 0; label < train.class_samples.size(); ++label) {
    if (train.class_samples[label] != 0) continue;
    const bool has_name = label < train.class_names.size();
    empty.push_back(has_name ? fmt::format("{} ('{}')", label, train.class_names[label]) : fmt::format("{}", label));
  }
  if (!train.labelled || empty.empty()) return findings;
  const std::size_t count = empty.size();
  empty.resize(std::min(count, kMaxNamed));
  findings.warn("{} of {} classes {} no training samples in {}: {}{}; the network cannot learn {}", count,
                train.class_samples.size(), count == 1 ? "has" : "have", train.name, fmt::join(empty, ", "),
                count > kMaxNamed ? ", ..." : "", count == 1 ? "it" : "them");
  return findings;
}

std::string one_class_text(const DatasetInfo& train) {
  const auto& samples = train.class_samples;
  const auto has_some = [](std::int64_t count) { return count > 0; };
  if (!train.labelled || std::ranges::count_if(samples, has_some) != 1) return {};
  const auto label = static_cast<std::size_t>(std::ranges::find_if(samples, has_some) - samples.begin());
  const auto& names = train.class_names;
  return fmt::format("{} has images of one class only, {}: a classifier needs two classes", train.name,
                     label < names.size() ? fmt::format("'{}'", names[label]) : fmt::format("{}", label));
}

Findings check_data(const DatasetInfo& train, const Shape& input, Severity of_one_class) {
  Findings findings = check_image_size(train, input);
  const std::string one_class = one_class_text(train);
  if (one_class.empty()) {
    findings.add(check_classes(train));
  } else {
    findings.add({.severity = of_one_class, .source = ErrorSource::input, .text = one_class});
  }
  return findings;
}

Findings check_tests(const RunConfig& config, const std::vector<std::string>& class_names, const Dataset* test) {
  Findings findings;
  if (test == nullptr || test->info().samples == 0) {
    if (config.trainer.checkpoint_at_best) {
      findings.warn("--keep-best keeps nothing, since there is no test set: give --validation-ratio or --test-data");
    }
    return findings;
  }
  std::vector<std::string> untested;
  for (std::size_t label = 0; label < class_names.size(); ++label) {
    if (std::ranges::count(test->labels(), static_cast<std::int32_t>(label)) == 0)
      untested.push_back(class_names[label]);
  }
  if (untested.empty() || test->labels().empty()) return findings;
  findings.warn(
      "none of {} is of class '{}'{}: the test accuracy says nothing about that; give a larger "
      "--validation-ratio, or other test data",
      plural(test->info().samples, "test image"), untested.front(),
      untested.size() == 1 ? "" : fmt::format(" (and {} more)", untested.size() - 1));
  return findings;
}

Findings check_parts(const RunConfig& config, bool has_batch_norm, std::int64_t train_samples) {
  Findings findings;
  const bool norms_parts = has_batch_norm && config.trainer.batch_norm == BatchNorm::part;
  const std::int64_t smallest = config.trainer.batch_size / config.trainer.num_parts;
  const std::int64_t last = train_samples % config.trainer.batch_size;
  const bool keeps_last = config.trainer.last_batch == LastBatch::keep && last > 0;
  if (keeps_last && train_samples < config.trainer.batch_size) {
    findings.warn(
        "--batch-size {} is more than {}: every step trains on all of them; use a smaller --batch-size for more steps "
        "per epoch",
        config.trainer.batch_size, plural(train_samples, "training image"));
  }
  if (smallest == 0) {
    findings.warn(
        "a batch of {} samples leaves {} of {} parts empty: give a larger --batch-size, or fewer --parts or ranks",
        config.trainer.batch_size, config.trainer.num_parts - config.trainer.batch_size, config.trainer.num_parts);
  } else if (smallest < kFewSamples && norms_parts) {
    findings.warn(
        "batch norm normalizes each part of {} samples alone, and below {} its statistics are noisy: give --batch-norm "
        "global, a larger --batch-size or fewer --parts",
        smallest, kFewSamples);
  } else if (norms_parts && keeps_last && last / config.trainer.num_parts < kTooFewSamples) {
    findings.warn(
        "the last batch of an epoch has {} samples in {} parts, too few for the statistics of batch norm: give "
        "--last-batch discard, or another --batch-size",
        last, config.trainer.num_parts);
  }
  if (smallest == 1 && config.recipe.augment.mixes()) {
    findings.warn(
        "mixup and cutmix mix the samples of a part, and with --batch-size {} a part has only one: give a larger "
        "--batch-size or fewer --parts",
        config.trainer.batch_size);
  }
  return findings;
}

Findings check_rates(const RunConfig& config, std::int64_t planned, std::int64_t scheduled) {
  Findings findings;
  if (config.trainer.learning_rate.base == 0)
    findings.warn("--lr 0: the weights will not change; give a learning rate above 0");
  if (config.trainer.schedule_epochs > 0 && !has_end(config.trainer.learning_rate.schedule) &&
      config.trainer.average.lookahead == 0) {
    findings.warn("--schedule-epochs {} has no effect with --schedule {}: it belongs to --schedule cosine and linear",
                  config.trainer.schedule_epochs, name_of(config.trainer.learning_rate.schedule));
  }
  if (config.trainer.learning_rate.schedule != Schedule::step && !config.texts.lr_period.empty()) {
    findings.warn("--lr-period {} has no effect with --schedule {}: it belongs to --schedule step",
                  config.texts.lr_period, name_of(config.trainer.learning_rate.schedule));
  }
  if (config.trainer.learning_rate.schedule == Schedule::constant && config.trainer.learning_rate.min > 0) {
    findings.warn("--min-lr {} has no effect with --schedule constant: it belongs to the other schedules",
                  config.trainer.learning_rate.min);
  }
  if (has_end(config.trainer.learning_rate.schedule) && config.trainer.learning_rate.base > 0 &&
      config.trainer.learning_rate.min == 0 && planned > scheduled) {
    findings.warn(
        "the {} schedule ends at epoch {}, and --epochs is {}: after that the learning rate is 0 and the "
        "weights will not change; give --schedule-epochs {}, or start a new run with --min-lr or with --init-from",
        name_of(config.trainer.learning_rate.schedule), config.trainer.schedule_epochs, config.trainer.epochs,
        config.trainer.epochs);
  }
  return findings;
}

Findings check_biases(const Network& network) {
  const auto& layers = network.layers();
  const auto only_normalized = [&](int number) {
    bool normalized = false;
    for (const NetworkLayer& reader : layers) {
      if (reader.from != number && reader.residual_from != number) continue;
      if (reader.residual_from == number || !std::holds_alternative<BatchNormSpec>(reader.spec)) return false;
      normalized = true;
    }
    return normalized;
  };
  const auto adds_only_a_bias = [](const auto& spec) {
    if constexpr (requires { spec.bias; }) return spec.bias && !spec.relu;
    return false;
  };
  std::vector<std::string> names;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool subtracted = std::visit(adds_only_a_bias, layers[i].spec) && only_normalized(static_cast<int>(i));
    if (subtracted) names.push_back(layers[i].name);
  }
  Findings findings;
  if (names.empty()) return findings;
  const std::string more = names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "";
  findings.warn("the batch norm after it subtracts the bias of {}{}: give bias = false in network '{}'", names.front(),
                more, network.spec().name);
  return findings;
}

}  // namespace tutti
