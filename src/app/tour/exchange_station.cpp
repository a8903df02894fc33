// How gradients can meet, measured.

#include "../bench/exchange_cost.hpp"
#include "../processors.hpp"
#include "../several.hpp"
#include "station.hpp"

#include <fmt/format.h>

#include <array>

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

void show_exchange(Tour& tour, Screen& screen) {
  const auto parameters = static_cast<double>(tour.run->assembly.network->layout().parameters());
  const ExchangeOptions usual = tour.run->assembly.options.exchange;
  screen.say(
      fmt::format("The sum can be had in other ways. Each of these exchanged and applied the gradients of station "
                  "5 on {}: what the busiest rank sent in a step, the time that took (median; the update is in "
                  "it), and what a rank holds at most of the optimizer's state.",
                  several(tour.world.size(), "rank")));
  screen.blank();
  screen.line(fmt::format("{:<8} {:<35}  {:>9} {:>6} {:>8}  {:>9}", "", "", "sent KiB", "B/par.", "ms", "state KiB"));
  for (const Way& way : kWays) screen.line(row_of(way, measure(tour, way.kind), parameters));
  tour.run->assembly.options.exchange = usual;
  screen.blank();
  screen.line("Bytes a parameter that the busiest of P ranks sends:");
  constexpr std::array kRanks{2, 4, 16, 64, 1024};
  std::string header = fmt::format("{:<8} {:<16}", "", "");
  for (const int ranks : kRanks) header += fmt::format(" {:>9}", fmt::format("P = {}", ranks));
  screen.line(header);
  for (const Way& way : kWays) {
    const char* const formula = way.kind == Exchange::central ? "4 (P - 1)"
                                : way.kind == Exchange::exact ? "12 (P - 1) / P"
                                                              : "8 (P - 1) / P";
    std::string row = fmt::format("{:<8} {:<16}", name_of(way.kind), formula);
    for (const int ranks : kRanks) row += fmt::format(" {:>9.1f}", bytes_a_parameter(way.kind, ranks));
    screen.line(row);
  }
  screen.blank();
  screen.say(
      "A single server sends more with every rank that joins; all others send about the same however many there are. "
      "More: trainer bench exchange." +
      crowding_text(tour));
}

}  // namespace tutti
