// The first step, phase by phase.

#include "../bench/exchange_cost.hpp"
#include "../checkpoint_tensors.hpp"
#include "../processors.hpp"
#include "../several.hpp"
#include "station.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <span>

namespace tutti {
namespace {

// The trainer's own step, with a look at what lies between its phases.
void play_first_step(Tour& tour) {
  Backend& backend = *tour.run->assembly.backend;
  Trainer& trainer = *tour.run->trainer;
  StepSeen& step = tour.step;
  step.learning_rate = trainer.learning_rate();
  const auto look = [&](StepStop stop) {
    switch (stop) {
      case StepStop::played:
        step.sums_here = trainer.rank_sums();
        step.gradients_here = read_excerpt(backend, trainer.gradients(), tour.excerpt);
        step.digest_here = trained_digest(tour, trainer.gradients());
        step.all_gradients_here = read_gradients(*tour.run);
        break;
      case StepStop::exchanged:
        step.gradients_of_all = read_excerpt(backend, trainer.gradients(), tour.excerpt);
        step.digest_of_all = trained_digest(tour, trainer.gradients());
        break;
      case StepStop::updated:
        step.weights_after = read_excerpt(backend, trainer.weights(), tour.excerpt);
    }
  };
  end_together(tour.world, [&] {
    trainer.step_with_stops(look);
    trainer.settle();
    step.sums_of_all = trainer.epoch_sums();
  });
}

std::string sums_row(const std::string& who, const LossSums& sums) {
  if (sums.samples == 0) return fmt::format("{:>6}  {:>6}  {:>8}  {:>12}", who, 0, "-", "-");
  return fmt::format("{:>6}  {:>6}  {:>8.4f}  {:>12}", who, sums.samples, sums.mean_loss(),
                     fmt::format("{} of {}", sums.correct, sums.samples));
}

LossSums sums_from(const std::vector<double>& figures) {
  LossSums sums{.correct = static_cast<std::int64_t>(figures[1]), .samples = static_cast<std::int64_t>(figures[2])};
  sums.add_loss(figures[0]);
  return sums;
}

// "dense2, dense1, conv2, conv1", or the first and the last of them.
std::string backward_order(const Network& network) {
  constexpr std::size_t kMost = 6;
  std::vector<std::string> names;
  for (std::size_t i = network.layers().size(); i-- > 0;) {
    if (!network.layers()[i].parameters.empty()) names.push_back(network.layers()[i].name);
  }
  if (names.size() > kMost) {
    names[kMost - 2] = "..";
    names.erase(names.begin() + kMost - 1, names.end() - 1);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// A reader adds up what is printed, and so does this.
double as_printed(double value, const ValueScale& scale) { return std::stod(scale.text(value)) / scale.factor; }

std::string row_of(const std::string& who, std::span<const double> values, const ValueScale& scale) {
  std::string text = fmt::format("{:<16}", who);
  for (const double value : values) text += fmt::format("  {:>16}", scale.text(value));
  return text;
}

// Gradients of ranks on the way into a sum: told one by one where there is room, the rest together.
struct Addends {
  std::vector<std::string> rows;
  std::vector<double> by_hand;
};

Addends add_up(const std::vector<std::vector<double>>& ranks, std::size_t columns, const ValueScale& scale) {
  constexpr int kMostRows = 4;
  Addends addends{.rows = {}, .by_hand = std::vector<double>(columns)};
  for (const ToldRanks& told : told_ranks(static_cast<int>(ranks.size()), kMostRows)) {
    std::vector<double> together(columns);
    for (int rank = told.first; rank < told.end; ++rank) {
      for (std::size_t i = 0; i < columns; ++i) together[i] += ranks[static_cast<std::size_t>(rank)][i];
    }
    addends.rows.push_back(row_of(told.text(), together, scale));
    for (std::size_t i = 0; i < columns; ++i) addends.by_hand[i] += as_printed(together[i], scale);
  }
  return addends;
}

std::string places_row(const Excerpt& excerpt) {
  std::string text = fmt::format("{:<16}", "");
  for (std::int64_t i = 0; i < excerpt.columns; ++i) {
    text += fmt::format("  {:>16}", place_text(excerpt.slice.shape, excerpt.elements[static_cast<std::size_t>(i)]));
  }
  return text;
}

// An exchange of one rank leaves its gradients alone.
std::string unchanged_text(Tour& tour) {
  const bool same = tour.step.digest_here == tour.step.digest_of_all;
  tour.is_right = tour.is_right && same;
  return same ? "The digest is that of station 5: the gradients are as they were."
              : "The digest is not that of station 5, and training cannot go well.";
}

// When gradients leave a rank.
std::string sending_text(const Tour& tour) {
  const std::size_t buckets = tour.run->trainer->bucket_ends().size();
  if (tour.world.size() == 1) {
    return "On one rank nothing is sent; more ranks would exchange gradients as these become final.";
  }
  const std::string waited = "For this step it was made to wait until you have seen what each rank has.";
  if (buckets == 1) {
    return "GradientSync sends them off in buckets, here all in one, which leaves when the first layer is done (of "
           "several, all but the last leave while earlier layers are still at work). " +
           waited;
  }
  return fmt::format(
      "GradientSync sends them off in buckets, {} here, and all but the last leave while earlier layers "
      "are still at work. {}",
      buckets, waited);
}

}  // namespace

void show_forward(Tour& tour, Screen& screen) {
  constexpr int kMostRows = 4;
  play_first_step(tour);
  const LossSums& here = tour.step.sums_here;
  const auto figures = all_gather_figures(
      tour.world, {here.loss(), static_cast<double>(here.correct), static_cast<double>(here.samples)});
  const int classes = tour.run->assembly.network->classes();
  const bool is_alone = tour.world.size() == 1;
  screen.say(fmt::format(
      "The replica of {}, and told how wrong it was (softmax cross-entropy, mean over its images) "
      "and how many it named rightly:",
      is_alone ? "the one rank has seen the whole batch" : "each rank has seen its own share of the batch"));
  screen.blank();
  screen.line(fmt::format("{:>6}  {:>6}  {:>8}  {:>12}", "rank", "images", "loss", "right"));
  for (const ToldRanks& told : told_ranks(tour.world.size(), kMostRows)) {
    const LossSums sums = sums_from(figures[static_cast<std::size_t>(told.first)]);
    screen.line(told.is_one() ? sums_row(fmt::format("{}", told.first), sums) : fmt::format("    .. {}", told.text()));
  }
  screen.line(sums_row("all", tour.step.sums_of_all));
  screen.blank();
  screen.say(
      fmt::format("{}The same probability for each of {} classes would have the loss ln {} = {:.4f}. The weights were "
                  "still as drawn: whether their loss is above or below that, nothing has been learned yet.",
                  is_alone ? "" : "The loss of all is the mean of theirs, each counted by its images. ", classes,
                  classes, std::log(classes)));
  screen.blank();
  screen.say(
      fmt::format("Then {} went back from its loss, the last layer first: {}. In that order gradients become "
                  "final. {}",
                  is_alone ? "it" : "each", backward_order(*tour.run->assembly.network), sending_text(tour)));
}

void show_gradients(Tour& tour, Screen& screen) {
  const ExcerptOfRanks ranks = gather_excerpt(tour.world, tour.step.gradients_here, tour.step.digest_here);
  const ValueScale scale = scale_for(ranks.values);
  const std::string images = several(tour.step.sums_of_all.samples, "image");
  if (tour.world.size() == 1) {
    screen.say(
        fmt::format("These are the gradients of the parameters that you saw at station 3: the mean over the {} of the "
                    "batch, all of which this rank has seen.",
                    images));
  } else {
    screen.say(
        fmt::format("The weights were the same and the images were not, so every rank would take a different step. "
                    "These are the gradients of the parameters that you saw at station 3, as each rank has them before "
                    "the exchange, already divided by the {} of the whole batch.",
                    images));
  }
  screen.blank();
  screen.line(fmt::format("Gradients of {}{}; below, the digest of all gradients:", tour.excerpt.words, scale.words));
  screen.blank();
  draw_excerpts(screen, tour.excerpt, ranks, scale);
  screen.blank();
  const std::size_t different = count_different(ranks.digests);
  if (tour.world.size() == 1) {
    screen.say(
        fmt::format("On four ranks each would have gradients of its own, of a share of the batch, and station 6 would "
                    "add them up: mpirun -np 4 {} tour --to sum",
                    short_call()));
  } else {
    screen.say(
        fmt::format("{}, {}: {} If each now went its own way, there would be {} networks, each trained on a "
                    "share of the data.",
                    several(tour.world.size(), "rank"), several(different, "digest"),
                    different == ranks.digests.size() ? "all differ." : "not all differ.", tour.world.size()));
  }
}

void show_sum(Tour& tour, Screen& screen) {
  constexpr int kMostRows = 4;
  const ExcerptOfRanks before = gather_excerpt(tour.world, tour.step.gradients_here, tour.step.digest_here);
  const ExcerptOfRanks after = gather_excerpt(tour.world, tour.step.gradients_of_all, tour.step.digest_of_all);
  const ValueScale scale = scale_for(before.values);
  const auto columns = static_cast<std::size_t>(tour.excerpt.columns);
  const Addends addends = add_up(before.values, columns, scale);
  const bool is_alone = tour.world.size() == 1;
  screen.say(
      is_alone ? "Where there are more ranks, an all-reduce adds what they have, element by element, and leaves the "
                 "sum with all of them. On one rank there is nothing to add, and nothing is sent."
               : fmt::format("An all-reduce adds what the ranks have, element by element, and leaves the sum with all "
                             "of them: here the mean gradient of the batch, as each rank has divided by the {} of the "
                             "whole batch.",
                             several(tour.step.sums_of_all.samples, "image")));
  screen.line(fmt::format("Gradients of {}, first row{}. Before:", tour.excerpt.words, scale.words));
  screen.line(places_row(tour.excerpt));
  for (const std::string& row : addends.rows) screen.line(row);
  screen.line(fmt::format("{:<16}{}", "", fmt::format("{0:>18}{0:>18}{0:>18}", "-------").substr(0, 18 * columns)));
  screen.line(row_of("added by hand", addends.by_hand, scale));
  screen.line("After, with the digest of all gradients:");
  for (const ToldRanks& told : told_ranks(tour.world.size(), kMostRows)) {
    const auto rank = static_cast<std::size_t>(told.first);
    const std::string row = row_of(told.text(), std::span(after.values[rank]).first(columns), scale);
    screen.line(told.is_one() ? fmt::format("{}    {}", row, after.digests[rank])
                              : fmt::format("  .. {}", told.text()));
  }
  if (is_alone) return screen.say(unchanged_text(tour));
  screen.say(verdict_text(tour, after.digests,
                          "every rank has the same sum. (Where the last digit by hand is another, the printed "
                          "addends were rounded.)"));
}

void show_step(Tour& tour, Screen& screen) {
  constexpr int kMostRows = 5;
  const bool is_alone = tour.world.size() == 1;
  const StepSeen& step = tour.step;
  const Tensor weights = tour.run->trainer->weights();
  const ExcerptOfRanks after = gather_excerpt(tour.world, step.weights_after, trained_digest(tour, weights));
  screen.say(fmt::format(
      "{}: weight - learning rate x gradient (SGD; its momentum of {} has nothing to remember before the "
      "first step{}). Values have about 7 digits in 32 bits: where you calculate by hand, the last of those "
      "printed may be others.",
      is_alone ? "The rank now updates its replica" : "Every rank now updates its own replica with the same sum",
      tour.run->assembly.options.optimizer.momentum,
      tour.config.warmup_epochs > 0 ? "; the rate is still rising" : ""));
  screen.blank();
  screen.line(fmt::format("On rank 0, {}:", tour.excerpt.words));
  screen.line(fmt::format("{:<14}{:>12}      {:<11}  {:>12}      {:>12}", "", "before", "rate", "gradient", "after"));
  for (std::size_t i = 0; i < static_cast<std::size_t>(tour.excerpt.columns); ++i) {
    screen.line(fmt::format("{:<14}{:>12.8f}   -  {:<10.6g} x {:>12.8f}   =  {:>12.8f}",
                            place_text(tour.excerpt.slice.shape, tour.excerpt.elements[i]), step.weights_before[i],
                            step.learning_rate, step.gradients_of_all[i], step.weights_after[i]));
  }
  screen.blank();
  screen.line(is_alone ? "The same after the step, and the digest of all parameters:"
                       : "The same after the step on each rank, and the digest of all its parameters:");
  for (const ToldRanks& told : told_ranks(tour.world.size(), kMostRows)) {
    const auto rank = static_cast<std::size_t>(told.first);
    std::string row = fmt::format("{:<14}", told.text());
    for (std::size_t i = 0; i < static_cast<std::size_t>(tour.excerpt.columns); ++i) {
      row += fmt::format("{:>12.8f}  ", after.values[rank][i]);
    }
    screen.line(told.is_one() ? fmt::format("{}  {}", row, after.digests[rank]) : fmt::format("  .. {}", told.text()));
  }
  screen.blank();
  if (is_alone) {
    return screen.say(
        fmt::format("Training is stations 2 to 7, over and over. On four ranks all replicas would take the same step, "
                    "and no weight would be sent: mpirun -np 4 {} tour --to step",
                    short_call()));
  }
  screen.say(verdict_text(tour, after.digests,
                          "no weight was sent, and the replicas are still the same. That is data-parallel training: "
                          "stations 2 to 7, over and over."));
}

}  // namespace tutti
