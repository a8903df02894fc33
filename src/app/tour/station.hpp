#pragma once
// The stations of the tour, and what they share: one run, looked at from before its first pass to its end. What they
// show is what the classes of training say; nothing is computed a second way.

#include "tutti/comm/world.hpp"
#include "tutti/watch/whereabouts.hpp"

#include "../abandon_at_end.hpp"
#include "../bench/readied.hpp"
#include "../run_config.hpp"
#include "excerpt.hpp"
#include "screen.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tutti {

// A run whose sums are given up where a watch ends the job. Watch and whereabouts are borrowed; without a watch (null),
// nobody does.
struct WatchedRun : Readied {
  AbandonAtEnd abandoning;

  // Collective.
  WatchedRun(World& world, const RunConfig& config, Whereabouts& whereabouts, StallWatch* watch)
      : Readied(world, config, &whereabouts), abandoning(watch, *assembly.communicator) {}
};

// The first step as this rank saw it. Of the excerpt, values in its order.
struct StepSeen {
  double learning_rate = 0;
  std::vector<double> weights_before{};
  std::vector<double> gradients_here{};
  std::vector<double> gradients_of_all{};
  std::vector<double> weights_after{};
  std::uint64_t digest_here = 0;  // of all gradients
  std::uint64_t digest_of_all = 0;
  LossSums sums_here{};
  LossSums sums_of_all{};
  std::vector<float> all_gradients_here{};  // the whole block
};

struct Tour {
  World& world;
  RunConfig config;
  Whereabouts& whereabouts;
  StallWatch* watch = nullptr;  // borrowed; null: nobody watches
  std::unique_ptr<WatchedRun> run{};
  Excerpt excerpt{};
  StepSeen step{};
  bool is_right = true;  // all that was to be equal was
};

// Each tells of one thing, on the screen of rank 0; in this order, all of them or the first ones. Collective.
void show_memory(Tour& tour, Screen& screen);
void show_batch(Tour& tour, Screen& screen);
void show_weights(Tour& tour, Screen& screen);
void show_forward(Tour& tour, Screen& screen);
void show_gradients(Tour& tour, Screen& screen);
void show_sum(Tour& tour, Screen& screen);
void show_step(Tour& tour, Screen& screen);
void show_exchange(Tour& tour, Screen& screen);
void show_training(Tour& tour, Screen& screen);

// What stations have to say of every rank, told for those for whom there is room. Collective.
struct ExcerptOfRanks {
  std::vector<std::vector<double>> values;  // by rank
  std::vector<std::string> digests;
};
ExcerptOfRanks gather_excerpt(World& world, const std::vector<double>& mine, std::uint64_t digest);
// Each rank's excerpt over its digest, side by side.
void draw_excerpts(Screen& screen, const Excerpt& excerpt, const ExcerptOfRanks& ranks, const ValueScale& scale);
std::size_t count_different(const std::vector<std::string>& digests);
// "4 ranks, 1 digest: " and what that means. They are to be equal, and the tour is not right where they are not.
std::string verdict_text(Tour& tour, const std::vector<std::string>& digests, const char* if_equal);
// How the program was called, so that it fits into a screen.
std::string short_call();
// That times are spoilt, where this host's ranks share cores; empty where each thread has its own.
std::string crowding_text(const Tour& tour);
std::uint64_t trained_digest(Tour& tour, const Tensor& block);

}  // namespace tutti
