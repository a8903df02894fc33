#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/utf8.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/storage/whole_file.hpp"

#include "assemble.hpp"
#include "contact_sheet.hpp"
#include "data_command.hpp"
#include "resolve_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <ranges>
#include <span>

namespace tutti {
namespace {

// A step of a run with these options, and what is in it.
struct ShownStep {
  std::int64_t epoch = 0;  // both counted from 1, as users do
  std::int64_t step = 0;   // of the run
  std::vector<std::int64_t> samples{};
  std::vector<std::vector<std::uint8_t>> pixels{};  // of each, as the network gets it
};

LoaderPlan plan_of(const RunConfig& config, const Dataset& data) {
  const int parts = config.parts == 0 ? 1 : static_cast<int>(config.parts);
  return {.batch_size = config.batch_size,
          .num_parts = parts,
          .parts = {0, parts},
          .last_batch = parse_last_batch(config.last_batch),
          .order = {.shuffle = parse_shuffle(config.shuffle), .seed = static_cast<std::uint64_t>(config.seed)},
          .steps_ahead = 0,
          .recipe = make_recipe(recipe_request(config), data)};
}

// Of the run's k-th step, counted from 1.
std::int64_t epoch_of(const SplitBatchSampler& schedule, std::int64_t step) {
  const auto epochs = std::views::iota(std::int64_t{0}, SplitBatchSampler::kMostEpochs - 1);
  return *std::ranges::partition_point(epochs,
                                       [&](std::int64_t epoch) { return schedule.steps_before(epoch + 1) < step; });
}

bool is_normalised(const ImageRecipe& recipe) { return !recipe.statistics.mean.empty(); }

// Values that are not normalised are pixel / 255; of the others -3 is black and 3 is white.
std::vector<std::uint8_t> shown_pixels(std::span<const float> values, bool normalised) {
  std::vector<std::uint8_t> pixels;
  for (const float value : values) {
    const float level = normalised ? (value + 3) / 6 : value;
    pixels.push_back(static_cast<std::uint8_t>(std::clamp(level, 0.0f, 1.0f) * 255.0f + 0.5f));
  }
  return pixels;
}

ShownStep prepare(const Dataset& data, const LoaderPlan& plan, const ShowRequest& request) {
  const auto backend = make_cpu_backend();
  const auto stream = backend->make_stream();
  BatchLoader loader(data, *backend, plan);
  const SplitBatchSampler& schedule = loader.schedule();
  const std::int64_t epoch = request.step > 0 ? epoch_of(schedule, request.step) : request.epoch - 1;
  loader.seek(epoch, request.step > 0 ? request.step - 1 - schedule.steps_before(epoch) : 0);
  const StepBatches& batches = loader.next(*stream);
  stream->synchronize();
  ShownStep shown{.epoch = batches.epoch + 1, .step = schedule.steps_before(batches.epoch) + batches.step + 1};
  const auto samplers = SplitBatchSampler::for_parts(data.info().samples, plan.batch_size, plan.num_parts, plan.parts,
                                                     plan.last_batch, plan.order);
  const auto elements = static_cast<std::size_t>(plan.recipe.image.elements());
  for (const Batch& batch : batches.batches) {
    const auto samples = samplers[static_cast<std::size_t>(batch.part)].indices(batches.epoch, batches.step);
    shown.samples.insert(shown.samples.end(), samples.begin(), samples.end());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto values = host_f32(batch.images).subspan(i * elements, elements);
      shown.pixels.push_back(shown_pixels(values, is_normalised(plan.recipe)));
    }
  }
  return shown;
}

std::string name_of_class(const DatasetInfo& info, std::int32_t label) {
  const auto number = static_cast<std::size_t>(label);
  return number < info.class_names.size() ? info.class_names[number] : fmt::format("{}", label);
}

void refuse_what_cannot_be_shown(const std::string& target, const DatasetInfo& info) {
  if (!target.ends_with(".png")) {
    throw Error(ErrorSource::usage,
                fmt::format("'{}': a contact sheet is a PNG file; give a name ending in .png", target));
  }
  if (info.image[0] != 1 && info.image[0] != 3) {
    throw Error(ErrorSource::usage, fmt::format("the images of {} have {} channels: only 1 (gray) and 3 (colour) can "
                                                "be shown",
                                                info.name, info.image[0]));
  }
}

void show(const World& world, const Invocation& invocation) {
  refuse_unknown_words(invocation.run);
  const OwnedData owned = open_noted(invocation.run, data_request(invocation.run), world);
  const Dataset& data = *owned.pair.train;
  const DatasetInfo& info = data.info();
  refuse_what_cannot_be_shown(invocation.target, info);
  const LoaderPlan plan = plan_of(invocation.run, data);
  const Shape& image = plan.recipe.image;
  const ShownStep shown = prepare(data, plan, invocation.show);
  const std::size_t count = std::min(static_cast<std::size_t>(invocation.show.count), shown.samples.size());
  SampleBatch originals;
  data.read(std::span(shown.samples).first(count), originals);
  std::vector<SheetEntry> entries;
  for (std::size_t i = 0; i < count; ++i) {
    entries.push_back({.image = {shown.pixels[i].data(), image},
                       .original = invocation.show.beside ? std::optional(originals.images[i]) : std::nullopt});
  }
  const ContactSheet sheet = make_contact_sheet(entries);
  write_whole(invocation.target, sheet.png);
  fmt::print("{}: {} of the {} images of step {} (epoch {}) of {}, {} x {}{}{}\n", invocation.target, count,
             shown.samples.size(), shown.step, shown.epoch, info.name, image[1], image[2],
             sheet.enlargement > 1 ? fmt::format(" enlarged {} times", sheet.enlargement) : "",
             is_normalised(plan.recipe) ? "; normalised values of -3 to 3 from black to white" : "");
  fmt::print("row column     sample  label\n");
  for (std::size_t i = 0; i < count; ++i) {
    const auto columns = static_cast<std::size_t>(sheet.columns);
    fmt::print("{:>3} {:>6} {:>10}  {}\n", i / columns + 1, i % columns + 1, shown.samples[i],
               printable(name_of_class(info, originals.labels[i])));
  }
}

}  // namespace

ExitStatus data_show(World& world, const Invocation& invocation) {
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    show(world, invocation);
    std::fflush(stdout);
  });
  return ExitStatus::done;
}

}  // namespace tutti
