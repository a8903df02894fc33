// What is there before anything is computed.

#include "tutti/data/split_batch_sampler.hpp"

#include "../several.hpp"
#include "drawn_image.hpp"
#include "station.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace tutti {
namespace {

std::string mib(double bytes) { return fmt::format("{:.2f}", bytes / 0x1p20); }

// "cpu: AVX-512 with bf16" of a longer description.
std::string short_description(const Backend& backend) {
  const std::string text = backend.description();
  return text.substr(0, text.find(','));
}

std::string ownership_text(const Tour& tour) {
  const std::string where = tour.run->trainer->weights().space == MemorySpace::host
                                ? "here the host's main memory, where this tour reads them directly"
                                : "which the host cannot read directly: this tour copies what it shows";
  if (tour.world.size() == 1) {
    return fmt::format(
        "The parameters exist in the memory of this rank's processor and nowhere else ({}). More ranks would each have "
        "their own, and none would see another's: what one has and others want has to be sent.",
        where);
  }
  return fmt::format(
      "Parameters exist in the memory of these processors and nowhere else ({}), and no rank sees another's: what one "
      "has and others want has to be sent.",
      where);
}

// Why the optimizer's state may be smaller than the weights.
std::string statistics_text(const ParameterLayout& layout) {
  std::int64_t count = 0;
  for (const ParameterSlice& slice : layout.statistics()) count += slice.elements();
  if (count == 0) return {};
  return fmt::format(
      " Weights and gradients include {} running statistics (means and variances of batch normalisation), of which the "
      "optimizer remembers nothing.",
      count);
}

// Parts differ by one image where they are not equal: "5 or 6 images".
std::string part_size_text(const TrainerOptions& options) {
  const std::int64_t fewest = options.batch_size / options.num_parts;
  if (options.batch_size % options.num_parts == 0) return several(fewest, "image");
  return fmt::format("{} or {}", fewest, several(fewest + 1, "image"));
}

std::string replicas_text(const Tour& tour) {
  const Assembly& assembly = tour.run->assembly;
  const ParameterLayout& layout = assembly.network->layout();
  return fmt::format(
      "{} a whole replica of {}: {} parameters in {} tensors, all in one block, and a block of gradients cut alike; "
      "what the optimizer remembers; and room for the activations of one part of a batch, here {}.",
      tour.world.size() == 1 ? "1 rank, which is one process, with"
                             : fmt::format("{} ranks, each a process of its own with", tour.world.size()),
      assembly.network->spec().name, layout.parameters(), layout.trained().size(), part_size_text(assembly.options));
}

std::string data_text(const Assembly& assembly) {
  const DatasetInfo& info = assembly.data.train->info();
  if (assembly.block.bytes().empty()) {
    return fmt::format("The {} training images are this program's own, and every rank opens them for itself.",
                       info.samples);
  }
  const double bytes = static_cast<double>(assembly.data.train->resident_bytes());
  if (bytes == 0) {
    return fmt::format("The {} training images are read from their files as they are needed.", info.samples);
  }
  return fmt::format(
      "The {} training images ({} MiB) belong to no rank: they lie once on each host, in memory that its "
      "ranks share.",
      info.samples, mib(bytes));
}

// By rank: bytes of weights, gradients, optimizer state and activations.
std::vector<double> memory_of(const Tour& tour) {
  const Trainer& trainer = *tour.run->trainer;
  const auto weights = static_cast<double>(tour.run->assembly.network->layout().block_bytes());
  const auto gradients = static_cast<double>(trainer.exchange_bytes());
  const auto optimizer = static_cast<double>(trainer.optimizer_bytes());
  return {weights, gradients, optimizer, static_cast<double>(trainer.memory_bytes()) - weights - gradients - optimizer};
}

std::string memory_row(const std::vector<double>& bytes) {
  return fmt::format("{:>9} {:>9} {:>9} {:>11}", mib(bytes[0]), mib(bytes[1]), mib(bytes[2]), mib(bytes[3]));
}

std::vector<double> total_of(const std::vector<std::vector<double>>& ranks) {
  std::vector<double> total(ranks.front().size());
  for (const auto& figures : ranks) {
    std::ranges::transform(total, figures, total.begin(), std::plus());
  }
  return total;
}

// What each rank takes of the first batch.
std::vector<SplitBatchSampler> samplers_of(const Tour& tour, IndexRange parts) {
  const TrainerOptions& options = tour.run->assembly.options;
  return SplitBatchSampler::for_parts(tour.run->assembly.data.train->info().samples, options.batch_size,
                                      options.num_parts, parts, options.last_batch,
                                      {.shuffle = options.shuffle, .seed = options.seed});
}

std::string range_text(IndexRange range) {
  if (range.size() == 0) return "none";
  return range.size() == 1 ? fmt::format("{}", range.begin) : fmt::format("{} to {}", range.begin, range.end - 1);
}

// Of the parts that a rank plays, which are consecutive.
IndexRange positions_of(std::int64_t n, int num_parts, IndexRange parts) {
  return {part_positions(n, num_parts, static_cast<int>(parts.begin)).begin,
          part_positions(n, num_parts, static_cast<int>(parts.end - 1)).end};
}

std::string first_of(const std::vector<double>& samples) {
  constexpr std::size_t kMost = 7;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, samples.size()); ++i) text += fmt::format("{:<6.0f} ", samples[i]);
  return samples.size() > kMost ? text + ".." : text;
}

// Epochs without steps come first where a batch takes more images than there are.
std::int64_t first_epoch(const SplitBatchSampler& schedule) {
  std::int64_t epoch = 0;
  while (schedule.steps(epoch) == 0) ++epoch;
  return epoch;
}

std::string steps_text(const SplitBatchSampler& schedule, std::int64_t epoch, const DatasetInfo& info) {
  const std::int64_t steps = schedule.steps(epoch);
  const std::int64_t last = schedule.batch_samples(epoch, steps - 1);
  return fmt::format("For every epoch SplitBatchSampler deals all {} training images anew, in batches of {}: {}{}.",
                     info.samples, schedule.batch_samples(epoch, 0), several(steps, "step"),
                     steps > 1 ? fmt::format(", the last one of {}", several(last, "image")) : "");
}

// How other numbers of ranks would share the batch.
std::string other_ranks_text(std::int64_t n) {
  constexpr int kRanks = 4;
  std::string text = fmt::format("On {} ranks this batch of {} would be cut at positions", kRanks, n);
  for (int part = 1; part < kRanks; ++part) {
    text += fmt::format("{} {}",
                        part == 1            ? ""
                        : part + 1 == kRanks ? " and"
                                             : ",",
                        part_positions(n, kRanks, part).begin);
  }
  return fmt::format("{}: mpirun -np 4 {} tour --to batch", text, short_call());
}

void draw_first_images(Tour& tour, const std::vector<double>& samples, Screen& screen) {
  constexpr int kMostDrawn = 5;  // of kWidest columns, side by side
  constexpr int kWidest = 18;
  std::string mine;
  run_agreed(tour.world, [&] {
    if (samples.empty()) return;
    mine = draw_image(*tour.run->assembly.data.train, static_cast<std::int64_t>(samples.front()));
  });
  const auto drawn = all_gather_text(tour.world, mine);
  std::vector<std::vector<std::string>> blocks;
  for (const ToldRanks& told : told_ranks(tour.world.size(), kMostDrawn)) {
    const std::string& image = drawn[static_cast<std::size_t>(told.first)];
    if (!told.is_one() || image.empty()) continue;
    auto& block = blocks.emplace_back(lines_of_drawing(image));
    block.insert(block.begin(), fmt::format("{:.{}}", fmt::format("{}: {}", told.text(), block.back()), kWidest));
    block.pop_back();
  }
  screen.side_by_side(blocks);
}

}  // namespace

void show_memory(Tour& tour, Screen& screen) {
  constexpr int kMostRows = 4;
  const Assembly& assembly = tour.run->assembly;
  const auto bytes = all_gather_figures(tour.world, memory_of(tour));
  const auto places = all_gather_text(tour.world, fmt::format("{:<10.10}  {:>8}  {:<30.30}", tour.world.host(),
                                                              ::getpid(), short_description(*assembly.backend)));
  screen.say(replicas_text(tour));
  screen.blank();
  screen.line(fmt::format("{:>4}  {:<10}  {:>8}  {:<30}{:>9} {:>9} {:>9} {:>11}", "rank", "host", "process",
                          "MiB in the memory of", "weights", "gradients", "optimizer", "activations"));
  for (const ToldRanks& told : told_ranks(tour.world.size(), kMostRows)) {
    const auto rank = static_cast<std::size_t>(told.first);
    screen.line(told.is_one() ? fmt::format("{:>4}  {}{}", rank, places[rank], memory_row(bytes[rank]))
                              : fmt::format("  .. {}", told.text()));
  }
  screen.line(fmt::format("{:>4}  {:<52}{}", "all", "", memory_row(total_of(bytes))));
  screen.blank();
  screen.say(ownership_text(tour) + statistics_text(assembly.network->layout()));
  screen.say(data_text(assembly));
  screen.say(
      "With more ranks a replica stays as large as it is; only activations shrink, as each rank's share of a batch "
      "does. Station 8 shows how the optimizer's share can shrink, too.");
}

void show_batch(Tour& tour, Screen& screen) {
  constexpr int kMostRows = 4;
  const Assembly& assembly = tour.run->assembly;
  const PartPlan& plan = tour.run->trainer->part_plan();
  std::vector<double> mine;
  const auto samplers = samplers_of(tour, plan.parts_of(tour.world.rank()));
  const std::int64_t epoch = first_epoch(samplers.front());
  for (const SplitBatchSampler& part : samplers) {
    for (const std::int64_t sample : part.indices(epoch, 0)) mine.push_back(static_cast<double>(sample));
  }
  const auto samples = all_gather_figures(tour.world, mine);
  const std::int64_t n = samplers.front().batch_samples(epoch, 0);
  screen.say(steps_text(samplers.front(), epoch, assembly.data.train->info()) +
             fmt::format(" Every batch is cut into {}; part p of L takes positions floor(n p / L) to "
                         "floor(n (p + 1) / L) - 1 of its n. The first batch:",
                         several(plan.num_parts(), "part")));
  screen.line(fmt::format("{:>4}  {:<9}  {:<13}  {:>6}  {}", "rank", "parts", "positions", "images",
                          "which of the data set's"));
  std::set<double> different;
  std::size_t dealt = 0;
  for (const auto& some : samples) {
    different.insert(some.begin(), some.end());
    dealt += some.size();
  }
  for (const ToldRanks& told : told_ranks(tour.world.size(), kMostRows)) {
    if (!told.is_one()) {
      screen.line(fmt::format("  .. {}", told.text()));
      continue;
    }
    const IndexRange parts = plan.parts_of(told.first);
    const auto& some = samples[static_cast<std::size_t>(told.first)];
    screen.line(fmt::format("{:>4}  {:<9}  {:<13}  {:>6}  {}", told.first, range_text(parts),
                            range_text(positions_of(n, plan.num_parts(), parts)), some.size(), first_of(some)));
  }
  screen.line(fmt::format("{:>4}  {:<9}  {:<13}  {:>6}  {} different ones: each image to one rank, none left out",
                          "all", range_text({0, plan.num_parts()}), range_text({0, n}), dealt, different.size()));
  tour.is_right = tour.is_right && different.size() == dealt && std::cmp_equal(dealt, n);
  screen.blank();
  if (tour.world.size() == 1) screen.say(other_ranks_text(n));
  draw_first_images(tour, mine, screen);
}

void show_weights(Tour& tour, Screen& screen) {
  const Tensor weights = tour.run->trainer->weights();
  tour.step.weights_before = read_excerpt(*tour.run->assembly.backend, weights, tour.excerpt);
  const ExcerptOfRanks ranks = gather_excerpt(tour.world, tour.step.weights_before, trained_digest(tour, weights));
  const ValueScale scale = scale_for(ranks.values);
  screen.say(
      fmt::format("An initial weight follows from the seed, its tensor's name and its place alone, so {}.",
                  tour.world.size() == 1
                      ? "any number of ranks could each draw all of them by itself, and nothing would have to be sent"
                      : "every rank drew all of them by itself, and nothing had to be sent"));
  screen.blank();
  screen.line(fmt::format("{}{}; below, the digest (a checksum) of all {} parameters:", tour.excerpt.words, scale.words,
                          tour.run->assembly.network->layout().parameters()));
  screen.blank();
  draw_excerpts(screen, tour.excerpt, ranks, scale);
  screen.blank();
  if (tour.world.size() == 1) {
    screen.say(fmt::format(
        "More ranks would show the same numbers and the same digest: mpirun -np 4 {} tour --to weights", short_call()));
  } else {
    screen.say(verdict_text(tour, ranks.digests, "the replicas are the same, to the last bit of the last parameter."));
  }
}

}  // namespace tutti
