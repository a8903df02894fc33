#include "scoring.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/data/trained_on.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/train/evaluation.hpp"

#include "checkpoint_choice.hpp"
#include "option_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <utility>

namespace tutti {
namespace {

// The checkpoint's configuration with this invocation's data, device and logging options.
RunConfig config_for(const Invocation& invocation, const LoadedCheckpoint& loaded) {
  const RunConfig& asked = invocation.run;
  RunConfig config = read_stored_config(loaded.state.configuration, loaded.path);
  config.extensions = asked.extensions;
  if (invocation.run.given.contains("exif")) config.data.applies_exif = asked.data.applies_exif;
  if (invocation.run.given.contains("class-depth")) config.data.class_depth = asked.data.class_depth;
  if (invocation.run.given.contains("validation-groups")) config.data.validation_groups = asked.data.validation_groups;
  if (invocation.run.given.contains("resident-mib")) {
    config.data.most_resident_bytes = asked.data.most_resident_bytes;
  }
  config.data.verification = asked.data.verification;
  config.data.data_file_check = asked.data.data_file_check;
  if (invocation.run.given.contains("views")) config.trainer.views = asked.trainer.views;
  const bool other_data = invocation.run.given.contains("data");
  const bool other_test_data = invocation.run.given.contains("test-data");
  if (other_data) config.data.train = asked.data.train;
  if (other_data || other_test_data) config.data.test = asked.data.test;
  if (other_test_data) config.data.validation_ratio = 0;
  if (!invocation.predict.images.empty()) {
    config.data.test.clear();
    config.data.validation_ratio = 0;
    config.data.skip_bad_images = false;
  }
  if (config.data.validation_ratio == 0) config.data.validation_groups.clear();
  config.data.skip_bad_images = config.data.skip_bad_images || asked.data.skip_bad_images;
  if (config.processor.precision == Precision::tf32)
    config.processor.precision.reset();  // so that CPUs can evaluate it, in fp32
  config.processor.device = asked.processor.device;
  config.processor.share_device = asked.processor.share_device;
  config.processor.gpu.search_plans = false;  // too slow for one pass over the data
  config.processor.comm = asked.processor.comm;
  config.output.quiet = asked.output.quiet;
  config.watch.timeout_seconds = asked.watch.timeout_seconds;
  config.exchange = Exchange::ring;
  config.trainer.exchange = {};
  config.trainer.safeguards.audit_every_steps = 0;  // of exact sums
  config.trainer.num_parts = kMaxParts;             // at least the number of ranks; an evaluation uses no parts
  config.trainer.part_map = {};
  return config;
}

// Throws an input error if labels are needed and the network has no such classes.
Assembly assemble_scoring(World& world, const Invocation& invocation, bool needs_labels, const LoadedCheckpoint& loaded,
                          const Log& log) {
  RunConfig config;
  NetworkSpec model;
  Sources sources{.model = model, .checkpoint = &loaded.state, .evaluates = true};
  run_or_throw_on_all(world, [&] {
    config = config_for(invocation, loaded);
    sources.trained = trained_on(loaded);
    if (!sources.trained && !needs_labels) {
      throw Error(ErrorSource::checkpoint,
                  fmt::format("'{}' was saved by an early version, without the image size and class names of its data: "
                              "train one more step with --resume to save a complete one",
                              loaded.path));
    }
    model = parse_model(loaded.state.model, "the checkpoint's model");
  });
  config.recipe.keeps_short_side = sources.trained && sources.trained->keeps_short_side;
  config.data.images = invocation.predict.images;
  config.data.allow_unlabelled = !needs_labels;
  config.data.allow_untrained_labels = true;
  config.data.allow_non_utf8_names = true;
  config.data.from_checkpoint = !invocation.run.given.contains("data");
  return assemble(world, find_facts(world, config.processor.device), config, sources, log);
}

LoadedCheckpoint load_chosen(World& world, const Invocation& invocation, const Log& log) {
  LoadedCheckpoint loaded = load_named_checkpoint(world, invocation.checkpoint, log);
  const bool has_average = !loaded.state.averages.empty();
  if (invocation.weights == SavedWeights::ema && !has_average) {
    throw Error(
        ErrorSource::checkpoint,
        fmt::format("--weights ema: {} holds no average, since its run has no --ema: leave --weights out", loaded.path))
        .on_all_ranks();
  }
  if (invocation.weights != SavedWeights::last) use_averages(loaded.state);
  if (world.rank() == 0) {
    if (const std::string better = better_checkpoint_text(loaded); !better.empty()) log.info(better);
  }
  if (has_average && !invocation.weights) log.info("the weights are the average over time; the other: --weights last");
  return loaded;
}

// The data that a run was trained on. Throws if they are not where its checkpoint says.
OwnedData open_trained_data(const LoadedCheckpoint& loaded) {
  DataRequest request = read_stored_config(loaded.state.configuration, loaded.path).data;
  request.most_resident_bytes = 1;  // names and labels only
  request.verification = Verification::start;
  request.data_file_check = DataFileCheck::none;
  request.allow_untrained_labels = true;
  request.allow_non_utf8_names = true;
  return open_data(request);
}

// The mean brightness of the tiles of an image's central square, which resizing hardly changes.
std::vector<double> tiles_of(const Dataset& data, std::int64_t sample) {
  SampleBatch batch;
  data.read(std::span(&sample, 1), batch);
  const ImageView& image = batch.images.front();
  const std::int64_t height = image.shape[1];
  const std::int64_t width = image.shape[2];
  const std::int64_t side = std::min(height, width);
  const std::int64_t tiles = std::min<std::int64_t>(4, side);
  std::vector<double> sums(static_cast<std::size_t>(tiles * tiles));
  std::vector<double> counts(sums.size());
  for (std::int64_t row = 0; row < image.shape[0] * side; ++row) {
    const std::int64_t y = row % side;
    const std::uint8_t* pixels =
        image.pixels + ((row / side) * height + (height - side) / 2 + y) * width + (width - side) / 2;
    for (std::int64_t x = 0; x < side; ++x) {
      const auto tile = static_cast<std::size_t>((y * tiles / side) * tiles + x * tiles / side);
      sums[tile] += pixels[x];
      ++counts[tile];
    }
  }
  for (std::size_t tile = 0; tile < sums.size(); ++tile) sums[tile] /= counts[tile];
  return sums;
}

// Whether two images with the same name are the same picture, perhaps in another size: cameras repeat their names in
// every folder. Images that cannot be compared count as the same.
bool are_same_picture(const Dataset& one_set, std::int64_t one, const Dataset& other_set, std::int64_t other) {
  constexpr double kMostDifference = 6;  // on average, of 255
  const auto show = [](const DatasetInfo& info) {
    return std::pair(info.image[0], info.has_short_side.value_or(true));
  };
  if (show(one_set.info()) != show(other_set.info())) return true;
  try {
    const std::vector<double> here = tiles_of(one_set, one);
    const std::vector<double> there = tiles_of(other_set, other);
    if (here.size() != there.size()) return true;
    const double difference = std::transform_reduce(here.begin(), here.end(), there.begin(), 0.0, std::plus<>(),
                                                    [](double a, double b) { return std::abs(a - b); });
    return difference <= kMostDifference * static_cast<double>(here.size());
  } catch (const Error&) {
    return true;
  }
}

using SamplePair = std::pair<std::int64_t, std::int64_t>;

// The samples of `data` whose names are those of training samples, each with its training sample.
std::vector<SamplePair> samples_with_names_of(const Dataset& trained, const Dataset& data) {
  std::map<std::string, std::int64_t> names;
  for (std::int64_t i = 0; i < trained.info().samples; ++i) names.emplace(trained.name_of(i), i);
  std::vector<SamplePair> found;
  for (std::int64_t i = 0; i < data.info().samples; ++i) {
    if (const auto name = names.find(data.name_of(i)); name != names.end()) found.emplace_back(i, name->second);
  }
  return found;
}

}  // namespace

std::string known_images_text(const LoadedCheckpoint& loaded, const Dataset& data) {
  constexpr std::size_t kMostCompared = 64;  // since they are decoded on one rank
  if (data.digest() == loaded.state.data_digest) {
    return "the network was trained on these images: its accuracy on others will be lower";
  }
  if (data.name_of(0).empty()) return {};
  std::vector<SamplePair> found;
  try {
    const OwnedData own = open_trained_data(loaded);
    if (own.pair.train->digest() != loaded.state.data_digest) return {};
    found = samples_with_names_of(*own.pair.train, data);
    const auto is_other = [&](const SamplePair& pair) {
      return !are_same_picture(data, pair.first, *own.pair.train, pair.second);
    };
    if (found.size() <= kMostCompared) {
      std::erase_if(found, is_other);
    } else {
      std::vector<SamplePair> sample(kMostCompared);
      for (std::size_t i = 0; i < kMostCompared; ++i) sample[i] = found[i * found.size() / kMostCompared];
      if (std::ranges::all_of(sample, is_other)) return {};
    }
  } catch (const Error&) {  // for example, the data have been moved
    return {};
  }
  if (found.empty()) return {};
  return fmt::format(
      "{} of these {} images have the names of images that the network was trained on, first {}: if "
      "they are the same, its accuracy on others will be lower",
      found.size(), data.info().samples, printable(data.name_of(found.front().first)));
}

Scoring::Scoring(World& world, const Invocation& invocation, bool needs_labels, const CommandContext& context)
    : world_(world),
      log_(world.rank(), world.host(), invocation.run.output.quiet),
      loaded_(load_chosen(world, invocation, log_)),
      assembly_(assemble_scoring(world, invocation, needs_labels, loaded_, log_)),
      abort_on_exit_(context.watch, *assembly_.communicator) {
  if (context.watch != nullptr) rank_status_.publish_in(context.watch->status_slot());
}

LossSums Scoring::evaluate(const Dataset& data, const Receive& receive) {
  const ScoreOutlet outlet{.world = world_, .receive = [&](const ChunkScores& scores) {
                             for (std::size_t i = 0; i < scores.samples.size(); ++i) {
                               if (std::isfinite(scores.samples[i].exponentials)) continue;
                               throw Error(
                                   ErrorSource::not_finite,
                                   fmt::format("the outputs of {} on image {} of {} are not finite", loaded_.path,
                                               scores.first + static_cast<std::int64_t>(i), data.info().name));
                             }
                             receive(scores);
                           }};
  LossSums sums;
  run_then_barrier(world_, [&] {
    sums = tutti::evaluate({.backend = *assembly_.processor.backend,
                            .communicator = *assembly_.communicator,
                            .network = *assembly_.network,
                            .data = data,
                            .recipe = assembly_.config.trainer.recipe,
                            .views = assembly_.config.trainer.views,
                            .threads = assembly_.config.trainer.threads,
                            .max_workers = assembly_.config.trainer.max_workers,
                            .rank_status = &rank_status_,
                            .scores = receive ? &outlet : nullptr},
                           loaded_.state);
    if (sums.not_finite == 0) return;
    throw Error(ErrorSource::not_finite,
                fmt::format("the loss of {} on {} is not finite", loaded_.path, data.info().name))
        .on_all_ranks();
  });
  return sums;
}

std::vector<std::string> shown_class_names(const DatasetInfo& data) {
  std::vector<std::string> names = data.class_names;
  for (int number = static_cast<int>(names.size()); number < data.classes; ++number) {
    names.push_back(fmt::format("{}", number));
  }
  return names;
}

// Compares logits, since different logits may give the same probability.
std::vector<RankedClass> best_classes(const ChunkScores& scores, std::size_t sample, std::size_t count) {
  const std::span<const float> logits = scores.logits_of(sample);
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(count, order.size()));
  std::ranges::partial_sort(order, end, [logits](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  std::vector<RankedClass> best;
  for (auto number = order.begin(); number != end; ++number) {
    best.push_back({*number, scores.probability(sample, *number)});
  }
  return best;
}

std::string evaluation_line(const std::string& set, const LossSums& sums) {
  return fmt::format("{0} loss {1:.4f}, {0} acc {2:.4f}, {3} images", set, sums.mean_loss(), sums.accuracy(),
                     sums.samples);
}

}  // namespace tutti
