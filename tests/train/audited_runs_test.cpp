// Random faults, and many steps without one. TUTTI_FAULTS and TUTTI_AUDITED_STEPS are their numbers.

#include "train/audited_ranks.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

int number(const char* name, int otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : std::stoi(given);
}

// The same on all ranks.
struct Trial {
  explicit Trial(unsigned seed) : random(seed) {
    ranks = below(2, 7);
    run.options.num_parts = below(ranks, 11);
    run.options.batch_size = below(2 * run.options.num_parts, 4 * run.options.num_parts);
    run.options.seed = seed;
    run.options.batch_norm = static_cast<BatchNorm>(seed % 2);
    run.options.safeguards.audit_every_steps = below(1, 4);
    const auto& layers = run.model.layers;
    layer = layers[static_cast<std::size_t>(below(0, static_cast<int>(layers.size())))].name;
    pass = below(0, 2) == 0 ? Phase::forward : Phase::backward;
    result = {.kind = static_cast<WrongKind>(below(0, 3)), .element = below(0, 100000), .bit = below(0, 32)};
    first_step = below(2, 8);
  }

  int below(int low, int high) { return std::uniform_int_distribution(low, high - 1)(random); }
  bool is_audited(std::int64_t step) const { return step % run.options.safeguards.audit_every_steps == 0; }
  std::int64_t first_position(int part) const {
    return part_positions(run.options.batch_size, run.options.num_parts, part).begin;
  }
  Fault fault(int rank, std::int64_t first, std::int64_t last, std::int64_t position = -1) const {
    WrongResult limited = result;
    limited.position = position;
    return wrong(rank, first, last, layer, pass, limited);
  }
  // Empty on ranks that are not needed.
  std::unique_ptr<World> world() const { return test_world().split(test_world().rank() < ranks ? 0 : -1); }

  std::mt19937 random;
  int ranks = 2;
  AuditedRun run;
  std::string layer;
  Phase pass = Phase::forward;
  WrongResult result;
  std::int64_t first_step = 0;
};

std::uint64_t gradients_after(World& world, const Trial& trial, std::int64_t step, const std::vector<Fault>& faults) {
  AuditedRun run = trial.run;
  run.options.safeguards.audit_every_steps = 0;
  run.options.steps = step;
  run.options.digest_every_steps = 1;
  return outcome_of(world, run, faults).digests.back().gradients;
}

// Whether a wrong result in this part of this step leaves the gradients as they are, after the `earlier` faults.
bool is_harmless(World& world, const Trial& trial, std::int64_t step, const AuditDraw& draw,
                 const std::vector<Fault>& earlier) {
  std::vector<Fault> faults = earlier;
  faults.push_back(trial.fault(draw.owner, step, step, trial.first_position(draw.part)));
  return gradients_after(world, trial, step, earlier) == gradients_after(world, trial, step, faults);
}

struct FaultCounts {
  int found = 0;
  int undecided = 0;
  int harmless = 0;
  int not_drawn = 0;
  int not_finite = 0;
};

// A large wrong result may make values infinite before the next audit, which ends the run, too.
bool is_not_finite(const AuditedOutcome& outcome, FaultCounts& counts) {
  if (!outcome.not_finite.empty()) ++counts.not_finite;
  return !outcome.not_finite.empty();
}

void count_persistent(Trial trial, FaultCounts& counts) {
  const auto world = trial.world();
  if (!world) return;
  const int rank = trial.below(0, trial.ranks);
  std::int64_t step = trial.first_step;
  while (!trial.is_audited(step) || !computes(draw_of(trial.run, trial.ranks, step), rank)) ++step;
  if (step == trial.first_step + 1) trial.first_step = step;  // a fault of one step would happen only once
  trial.run.options.steps = step;
  const auto outcome = outcome_of(*world, trial.run, {trial.fault(rank, trial.first_step, step + 1)});
  if (is_not_finite(outcome, counts)) return;
  if (!outcome.found) {
    ++counts.harmless;
    const std::vector<Fault> earlier{trial.fault(rank, trial.first_step, step - 1)};
    EXPECT_TRUE(is_harmless(*world, trial, step, draw_of(trial.run, trial.ranks, step),
                            step > trial.first_step ? earlier : std::vector<Fault>{}));
    return;
  }
  const WrongPartReport& found = *outcome.found;
  ++counts.found;
  EXPECT_EQ(found.step, step);
  EXPECT_EQ(std::pair(found.layer, found.pass), std::pair(trial.layer, trial.pass)) << found.text;
  if (found.is_decided) {
    EXPECT_EQ(found.ranks, std::vector{rank}) << found.text;
  } else {
    EXPECT_EQ(trial.ranks, 2);
    ++counts.undecided;
  }
}

void count_one_off(Trial trial, FaultCounts& counts) {
  const auto world = trial.world();
  if (!world) return;
  const std::int64_t step = trial.first_step;
  const int part = trial.below(0, trial.run.options.num_parts);
  const AuditDraw draw = draw_of(trial.run, trial.ranks, step);
  const bool is_drawn = trial.is_audited(step) && draw.part == part;
  const int rank = PartMap(trial.run.options.num_parts, trial.ranks).rank_of(part);
  trial.run.options.steps = step + 1;
  const auto outcome = outcome_of(*world, trial.run, {trial.fault(rank, step, step, trial.first_position(part))});
  if (is_not_finite(outcome, counts)) return;
  if (!is_drawn) {
    EXPECT_FALSE(outcome.found) << outcome.found->text;
    ++counts.not_drawn;
  } else if (!outcome.found) {
    ++counts.harmless;
    EXPECT_TRUE(is_harmless(*world, trial, step, draw, {}));
  } else {
    ++counts.found;
    EXPECT_EQ(outcome.found->step, step);
    EXPECT_EQ(outcome.found->ranks, std::vector{rank}) << outcome.found->text;
  }
}

void print(const char* what, const FaultCounts& counts) {
  if (test_world().rank() > 0) return;
  std::cout << fmt::format("{}: {} found, of which {} undecided; {} harmless, {} not drawn, {} not finite before\n",
                           what, counts.found, counts.undecided, counts.harmless, counts.not_drawn, counts.not_finite);
}

// Rank 0 takes part in all trials.
TEST(AuditedRuns, NameRankLayerAndPassOfFaultsThatPersist) {
  FaultCounts counts;
  const std::int64_t wanted = number("TUTTI_FAULTS", 500);
  for (unsigned seed = 1; counts.found < wanted; ++seed) {
    SCOPED_TRACE(seed);
    count_persistent(Trial(seed), counts);
    counts.found = all_gather_values<int>(test_world(), std::span<const int>(&counts.found, 1))[0][0];
  }
  print("persistent", counts);
}

TEST(AuditedRuns, FindFaultsThatHappenOnceExactlyIfTheyAreDrawn) {
  FaultCounts counts;
  double expected = 0;
  const int wanted = number("TUTTI_FAULTS", 500);
  for (int i = 0; i < wanted; ++i) {
    const Trial trial(static_cast<unsigned>(100000 + i));
    SCOPED_TRACE(i);
    if (trial.is_audited(trial.first_step)) expected += 1.0 / trial.run.options.num_parts;
    count_one_off(trial, counts);
  }
  print("once", counts);
  if (test_world().rank() == 0) std::cout << fmt::format("expected to be drawn: {:.1f}\n", expected);
}

TEST(AuditedRuns, ReportNothingWithoutAFault) {
  constexpr int kVariants = 10;
  for (int variant = 0; variant < kVariants; ++variant) {
    AuditedRun run;
    run.data = "synthetic:203x1x8x8:5";
    TrainerOptions& options = run.options;
    options.batch_size = 19;
    options.num_parts = 9;
    options.last_batch = LastBatch::keep;
    options.seed = static_cast<std::uint64_t>(variant);
    options.steps = number("TUTTI_AUDITED_STEPS", 10000) / kVariants;
    options.recipe.augment = static_cast<Crop>(variant % 4);
    options.max_workers = 1 + variant % 2;
    options.exchange.shard_optimizer = variant % 3 == 1;
    if (variant % 3 == 2) options.batch_norm = BatchNorm::global;
    if (variant % 2 == 1) run.precision = Precision::bf16;
    const int ranks = 2 + variant % 5;
    if (variant >= 5) {
      options.part_map.balanced = true;
    } else {
      options.part_map.parts_by_rank.assign(static_cast<std::size_t>(ranks), 1);
      options.part_map.parts_by_rank.front() += options.num_parts - ranks;
    }
    const auto world = test_world().split(test_world().rank() < ranks ? 0 : -1);
    if (!world) continue;
    const auto outcome = outcome_of(*world, run, {});
    EXPECT_FALSE(outcome.found) << outcome.found->text;
    EXPECT_EQ(outcome.steps_done, options.steps);
  }
}

}  // namespace
}  // namespace tutti
