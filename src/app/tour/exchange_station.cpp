// How gradients can meet, measured.

#include "../bench/exchange_cost.hpp"
#include "../processors.hpp"
#include "../several.hpp"
#include "station.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace tutti {
namespace {

struct Way {
  Exchange kind;
  const char* who;        // updates which weights
  const char* remembers;  // where the optimizer's state is
};
constexpr std::array kWays{
    Way{Exchange::central, "rank 0 adds, updates, sends weights", "on rank 0"},
    Way{Exchange::sharded, "each adds and updates its share", "a share on each"},
    Way{Exchange::ring, "added in a ring, each updates all", "all on each"},
    Way{Exchange::exact, "likewise, by sums of whole numbers", "all on each"},
};

// Bytes that the busiest of so many ranks sends a step, per parameter.
double bytes_a_parameter(Exchange kind, double ranks) {
  switch (kind) {
    case Exchange::central:
      return 4 * (ranks - 1);
    case Exchange::sharded:
    case Exchange::ring:
      return 8 * (ranks - 1) / ranks;
    case Exchange::exact:
      return 12 * (ranks - 1) / ranks;
  }
  return 0;
}

ExchangeCost measure(Tour& tour, Exchange kind) {
  constexpr TimedSteps kSteps{.warmup = 3, .timed = 15};
  Readied& run = *tour.run;
  run.assembly.options.exchange = {.kind = kind};
  tour.whereabouts.enter(Phase::starting);
  run.begin_anew(tour.world, &tour.whereabouts);
  ExchangeCost cost;
  end_together(tour.world, [&] { cost = measure_exchange(tour.world, run, kSteps, tour.step.all_gradients_here); });
  return cost;
}

std::string row_of(const Way& way, const ExchangeCost& cost, double parameters) {
  return fmt::format("{:<8} {:<35}  {:>9.1f} {:>6.2f} {:>8.3f}  {:>9.1f} {}", name_of(way.kind), way.who,
                     cost.sent_bytes / 0x1p10, cost.sent_bytes / parameters, cost.step.median * 1e3,
                     cost.optimizer_bytes / 0x1p10, way.remembers);
}

}  // namespace

std::string crowding_text(const Tour& tour) {
  const Assembly& assembly = tour.run->assembly;
  if (has_room_for(assembly.cores, tour.world, assembly.options.threads)) return {};
  return fmt::format(" {} share {} here, which spoils the times.", several(tour.world.local_size(), "rank"),
                     several(assembly.cores.usable, "core"));
}

namespace {

// Some numbers of ranks, these among them.
std::vector<int> told_rank_counts(int ranks) {
  std::vector<int> counts{2, 4, 16, 64, 1024};
  if (std::ranges::count(counts, ranks) == 0) counts.push_back(ranks);
  std::ranges::sort(counts);
  return counts;
}

void tell_formulas(int ranks, Screen& screen) {
  const std::vector<int> counts = told_rank_counts(ranks);
  std::string header = fmt::format("{:<25}", "B/par. by formula:");
  for (const int count : counts) header += fmt::format(" {:>9}", fmt::format("P = {}", count));
  screen.line(header);
  for (const Way& way : kWays) {
    const char* const formula = way.kind == Exchange::central ? "4 (P - 1)"
                                : way.kind == Exchange::exact ? "12 (P - 1) / P"
                                                              : "8 (P - 1) / P";
    std::string row = fmt::format("{:<8} {:<16}", name_of(way.kind), formula);
    for (const int count : counts) row += fmt::format(" {:>9.2f}", bytes_a_parameter(way.kind, count));
    screen.line(row);
  }
}

// Why what was measured is not what the formulas say.
std::string measured_text(const Tour& tour) {
  if (tour.world.size() == 1) return "One rank sends nothing.";
  const bool has_statistics = !tour.run->assembly.network->layout().statistics().empty();
  return fmt::format(
      "B/par. may exceed its formula: padding, {}a check for infinite values and the scales of exact are sent too, and "
      "shares are whole blocks, "
      "not quite equal.",
      has_statistics ? "running statistics, " : "");
}

}  // namespace

void show_exchange(Tour& tour, Screen& screen) {
  const auto parameters = static_cast<double>(tour.run->assembly.network->layout().parameters());
  const ExchangeOptions usual = tour.run->assembly.options.exchange;
  screen.say(
      fmt::format("Other ways to the sum, on {}: what the busiest rank sent in a step (B/par.: bytes a parameter), the "
                  "step's median time with the update, and the most optimizer state on a rank.",
                  several(tour.world.size(), "rank")));
  screen.blank();
  screen.line(fmt::format("{:<8} {:<35}  {:>9} {:>6} {:>8}  {:>9}", "", "", "sent KiB", "B/par.", "ms", "state KiB"));
  for (const Way& way : kWays) screen.line(row_of(way, measure(tour, way.kind), parameters));
  tour.run->assembly.options.exchange = usual;
  screen.blank();
  tell_formulas(tour.world.size(), screen);
  screen.blank();
  screen.say(measured_text(tour) +
             " A single server sends more with every rank that joins; with the other three ways a rank sends about the "
             "same however many there are. More: bench exchange." +
             crowding_text(tour));
}

}  // namespace tutti
