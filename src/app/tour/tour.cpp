#include "tour.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/program_name.hpp"

#include "keys.hpp"
#include "station.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

namespace tutti {
namespace {

struct Station {
  const char* name;
  const char* title;
  const char* title_alone;  // of one rank
  void (*show)(Tour&, Screen&);
  const char* computed_by;
};
constexpr std::array kStations{
    Station{"memory", "what exists where, before the first forward pass",
            "what exists where, before the first forward pass", show_memory,
            "ParameterArena (include/tutti/nn/parameter_arena.hpp), PartContext (include/tutti/nn/part_context.hpp), "
            "load_once (src/app/load_once.cpp)"},
    Station{"batch", "a batch is split over the ranks", "a batch, which more ranks would split", show_batch,
            "SplitBatchSampler (include/tutti/data/split_batch_sampler.hpp), PartPlan "
            "(include/tutti/data/part_plan.hpp)"},
    Station{"weights", "every rank begins with the same parameters", "the parameters to begin with", show_weights,
            "initialize (src/nn/network.cpp), philox (src/base/random.cpp), digest (include/tutti/base/digest.hpp)"},
    Station{"forward", "one forward and backward pass on every rank", "one forward and backward pass", show_forward,
            "Replica::step (src/train/replica.cpp), PartTeam (src/train/part_team.cpp), PartContext "
            "(src/nn/part_context.cpp)"},
    Station{"gradients", "the gradients differ from rank to rank", "the gradients of the whole batch", show_gradients,
            "PartContext::backward (src/nn/part_context.cpp), PartSum (src/train/part_sum.cpp)"},
    Station{"sum", "an all-reduce makes them the same", "an all-reduce, for which one rank has no need", show_sum,
            "GradientSync (src/train/gradient_sync.cpp), Communicator (include/tutti/comm/communicator.hpp)"},
    Station{"step", "one step, and the replicas are still the same", "one step", show_step,
            "Optimizer (src/train/sgd.cpp), Backend::sgd_step (include/tutti/backend/backend.hpp)"},
    Station{"exchange", "central, sharded, ring and exact exchanges", "central, sharded, ring and exact exchanges",
            show_exchange,
            "Ownership (src/train/ownership.cpp), GradientSync (src/train/gradient_sync.cpp), ExactSum "
            "(src/train/exact_sum.cpp)"},
    Station{"training", "a short training, and the same on one rank", "a short training", show_training,
            "Trainer (src/train/trainer.cpp), ExactSum (src/train/exact_sum.cpp), World::split "
            "(include/tutti/comm/world.hpp)"}};

std::string list_of_stations() {
  std::string text;
  for (std::size_t i = 0; i < kStations.size(); ++i) {
    text += fmt::format("{:>2}  {:<10} {}\n", i + 1, kStations[i].name, kStations[i].title);
  }
  return text;
}

// How many stations there are up to this one, which is given by its number or name; empty: all.
std::size_t stations_up_to(const std::string& last) {
  for (std::size_t i = 0; i < kStations.size(); ++i) {
    if (last == kStations[i].name || last == fmt::format("{}", i + 1)) return i + 1;
  }
  if (last.empty()) return kStations.size();
  throw Error(ErrorSource::usage,
              fmt::format("--to {}: there is no such station; give one of 1 to {}, or its name as {} tour "
                          "--stations lists them",
                          last, kStations.size(), program_call()));
}

// One part a rank unless others are asked for, so that every rank count is as it is told.
RunConfig config_for(const World& world, RunConfig config) {
  if (config.parts == 0) config.parts = world.size();
  config.exchange = "ring";
  config.test_every = 0;
  return config;
}

void print_on_first(const World& world, const std::string& text) {
  if (world.rank() != 0) return;
  fmt::print("{}", text);
  std::fflush(stdout);
}

// What takes time is announced before it is done.
void visit(Tour& tour, std::size_t number) {
  const Station& station = kStations[number - 1];
  const std::string heading = fmt::format("Station {} of {}, {}: {}", number, kStations.size(), station.name,
                                          tour.world.size() == 1 ? station.title_alone : station.title);
  print_on_first(tour.world, fmt::format("{}\n{}\n", heading, std::string(heading.size(), '-')));
  Screen screen;
  station.show(tour, screen);
  screen.say(fmt::format("Computed by {}.", station.computed_by));
  print_on_first(tour.world, screen.text());
}

}  // namespace

std::string short_call() {
  constexpr std::size_t kMostLetters = 20;
  const std::string call = program_call();
  return call.size() <= kMostLetters ? call : program_name();
}

ExitStatus tour_command(World& world, const Invocation& invocation, const EndRecord& record) {
  std::size_t stations = 0;
  run_agreed(world, [&] { stations = stations_up_to(invocation.tour.to); });
  if (invocation.tour.lists) {
    print_on_first(world, list_of_stations());
    return ExitStatus::done;
  }
  Whereabouts whereabouts;
  if (record.watch != nullptr) whereabouts.publish_in(record.watch->place_slot());
  Tour tour{
      .world = world, .config = config_for(world, invocation.run), .whereabouts = whereabouts, .watch = record.watch};
  tour.run = std::make_unique<WatchedRun>(world, tour.config, tour.whereabouts, tour.watch);
  run_agreed(world, [&] { tour.excerpt = choose_excerpt(*tour.run->assembly.network); });
  Keys keys(invocation.tour.pauses && world.rank() == 0, whereabouts);
  for (std::size_t number = 1; number <= stations; ++number) {
    visit(tour, number);
    // A prompt takes the place of the empty line, so that both leave the heading on the screen.
    const bool is_last = number == stations;
    const bool asks = keys.asks() && !is_last;
    if (!asks) print_on_first(world, "\n");
    if (invocation.tour.pauses && !is_last && !world.agree(!asks || keys.go_on())) break;
  }
  return world.agree(tour.is_right) ? ExitStatus::done : ExitStatus::answer_is_no;
}

}  // namespace tutti
