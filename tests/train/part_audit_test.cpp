// An audit finds a part that a rank computed wrong, before anything is updated, and names rank, layer and pass.

#include "support/thrown.hpp"
#include "train/audited_ranks.hpp"
#include "train/run_spec.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

constexpr std::int64_t kForever = 1000;

// The first step from `step` on in whose audit the rank computes.
std::int64_t found_at(const AuditedRun& run, int rank, std::int64_t step) {
  while (!computes(draw_of(run, test_world().size(), step), rank)) ++step;
  return step;
}

class PartAudit : public ::testing::TestWithParam<BatchNorm> {
 protected:
  PartAudit() { run.options.batch_norm = GetParam(); }
  AuditedRun run;
};
INSTANTIATE_TEST_SUITE_P(BatchNorm, PartAudit, ::testing::Values(BatchNorm::part, BatchNorm::global),
                         [](const auto& test) { return std::string(name_of(test.param)); });

struct Case {
  int rank = 0;
  const char* layer = "";
  Phase pass = Phase::forward;
  WrongResult result{};
};

std::vector<Case> cases() {
  return {
      {0, "stem.conv", Phase::forward, {.kind = WrongKind::scale, .element = 40}},
      {1, "stem.conv", Phase::backward, {.kind = WrongKind::bit, .element = 7, .bit = 20}},
      {1, "block.norm", Phase::forward, {.kind = WrongKind::stuck, .element = 300}},
      {0, "block.norm", Phase::backward, {.kind = WrongKind::bit, .element = 5, .bit = 22}},
      {1, "head", Phase::forward, {.kind = WrongKind::stuck, .element = 3}},
      {0, "dense", Phase::backward, {.kind = WrongKind::stuck, .element = 11}},
  };
}

TEST_P(PartAudit, NamesRankLayerAndPassOfAFaultThatPersistsAtTheNextAuditThatDrawsTheRank) {
  if (test_world().size() == 1) return;
  for (const Case& each : cases()) {
    SCOPED_TRACE(fmt::format("rank {}, {} pass of {}", each.rank, name_of(each.pass), each.layer));
    const auto outcome =
        outcome_of(test_world(), run, {wrong(each.rank, 4, kForever, each.layer, each.pass, each.result)});
    ASSERT_TRUE(outcome.found);
    EXPECT_EQ(outcome.found->step, found_at(run, each.rank, 4));
    EXPECT_EQ(outcome.steps_done, outcome.found->step - 1);
    EXPECT_EQ(outcome.found->part, draw_of(run, test_world().size(), outcome.found->step).part);
    EXPECT_EQ(outcome.found->ranks, std::vector{each.rank}) << outcome.found->text;
    EXPECT_TRUE(outcome.found->is_decided && outcome.found->repeats);
    EXPECT_EQ(outcome.found->layer, each.layer);
    EXPECT_EQ(outcome.found->pass, each.pass);
  }
}

// The fault is in one part of one step, which is audited or not.
TEST_P(PartAudit, FindsAFaultThatHappensOnceExactlyIfItsPartIsDrawn) {
  if (test_world().size() == 1) return;
  run.options.steps = 6;
  const std::int64_t of_part = run.options.batch_size / run.options.num_parts;
  int found = 0;
  for (std::int64_t step = 2; step <= 4; ++step) {
    const AuditDraw draw = draw_of(run, test_world().size(), step);
    for (const int part : {draw.part, (draw.part + 1) % run.options.num_parts}) {
      const int rank = PartMap(run.options.num_parts, test_world().size()).rank_of(part);
      const auto outcome = outcome_of(test_world(), run,
                                      {wrong(rank, step, step, "dense", Phase::backward,
                                             {.kind = WrongKind::stuck, .element = 5, .position = part * of_part})});
      EXPECT_EQ(outcome.found.has_value(), part == draw.part) << step;
      if (!outcome.found) continue;
      ++found;
      EXPECT_EQ(outcome.found->step, step);
      EXPECT_EQ(outcome.found->ranks, std::vector{rank}) << outcome.found->text;
      EXPECT_FALSE(outcome.found->repeats);
      EXPECT_EQ(outcome.found->layer, "dense");
      EXPECT_EQ(outcome.found->pass, Phase::backward);
    }
  }
  EXPECT_EQ(found, 3);
}

TEST_P(PartAudit, NamesTheRankWhichAuditsIfThatIsWrong) {
  if (test_world().size() == 1) return;
  run.options.steps = 6;
  const AuditDraw draw = draw_of(run, test_world().size(), 3);
  const auto outcome = outcome_of(test_world(), run,
                                  {wrong(draw.auditor, 3, 3, "block.conv", Phase::forward,
                                         {.kind = WrongKind::scale, .element = 5, .position = draw.part * 2})});
  ASSERT_TRUE(outcome.found);
  EXPECT_EQ(outcome.found->ranks, std::vector{draw.auditor}) << outcome.found->text;
}

TEST_P(PartAudit, OfARankAloneFindsAFaultThatHappensOnceButNoneThatPersists) {
  const auto alone = test_world().split(test_world().rank());
  run.options.steps = 3;
  const std::int64_t position = draw_of(run, 1, 2).part * 2;
  const auto fault = [&](std::int64_t last_step) {
    return std::vector{wrong(0, 2, last_step, "head", Phase::backward,
                             {.kind = WrongKind::scale, .element = 5, .position = position})};
  };
  // Communicators of one rank number it 0.
  const auto once = outcome_of(*alone, run, fault(2));
  ASSERT_TRUE(once.found);
  EXPECT_EQ(once.found->ranks, std::vector{0});
  EXPECT_NE(once.found->text.find("twice with different results"), std::string::npos) << once.found->text;
  EXPECT_FALSE(outcome_of(*alone, run, fault(3)).found);
}

TEST(PartAudits, IsMadeByARankWithTheSameKindOfProcessor) {
  const PartMap map(8, 5);
  const std::vector<std::string> devices{"cpu: A", "cuda: B, GPU 0", "cpu: C", "cuda: B, GPU 1", "cuda: D, GPU 0"};
  const auto kind = [&](int rank) { return processor_kind(devices.at(static_cast<std::size_t>(rank))); };
  std::vector<int> audits(8);
  for (std::int64_t step = 0; step < 400; ++step) {
    const AuditDraw draw = draw_audit(3, step, 16, map, devices);
    EXPECT_EQ(draw.owner, map.rank_of(draw.part));
    for (const int rank : draw.ranks()) EXPECT_EQ(kind(rank), kind(draw.owner));
    EXPECT_EQ(draw.auditor == draw.owner, draw.owner == 4);
    EXPECT_FALSE(draw.third);
    ++audits[static_cast<std::size_t>(draw.part)];
  }
  EXPECT_GT(std::ranges::min(audits), 20);
  for (std::int64_t step = 0; step < 100; ++step) {
    const AuditDraw draw = draw_audit(3, step, 5, PartMap(8, 3), {});
    EXPECT_GT(part_positions(5, 8, draw.part).size(), 0);
    EXPECT_EQ(draw.owner + draw.auditor + *draw.third, 3);
  }
}

TEST(PartAudits, CallsThoseWrongThatDifferFromWhatTwoRanksComputed) {
  using Values = std::vector<std::int64_t>;
  const Values right{1, 2};
  const Values other{1, 3};
  const Values third{1, 4};
  const AuditedRank steady{.first = {right}, .again = right};
  const AuditedRank wrong{.first = {other}, .again = other};
  const AuditedRank wrong_once{.first = {other}, .again = right};
  const AuditedRank decides{.again = right};
  EXPECT_EQ(wrong_ranks({{4, steady}, {1, wrong}, {2, decides}}), std::vector{1});
  EXPECT_EQ(wrong_ranks({{4, steady}, {1, wrong_once}, {2, decides}}), std::vector{1});
  EXPECT_EQ(wrong_ranks({{4, steady}, {1, wrong_once}}), std::vector{1});
  EXPECT_EQ(wrong_ranks({{0, {.first = {right, other}, .again = right}}}), std::vector{0});
  // Two ranks that both repeat what they computed.
  EXPECT_EQ(wrong_ranks({{0, steady}, {1, wrong}}), std::vector<int>{});
  AuditedRank changed = wrong;
  changed.has_changed = true;
  EXPECT_EQ(wrong_ranks({{0, steady}, {1, changed}}), std::vector{1});
  EXPECT_EQ(wrong_ranks({{0, steady}, {1, {.first = {other}, .again = third}}}), std::vector{1});
}

TEST(PartAudits, OfHealthyRanksReportsNothingAndChangesNoBit) {
  for (const int variant : {0, 1, 2, 3, 4}) {
    RunSpec spec = small_run(audited_network(), {.kind = Exchange::exact});
    spec.ranks = test_world().size();
    spec.options.steps = 16;
    spec.options.num_parts = 7;
    spec.options.recipe.augment = Crop::crop_flip;
    spec.options.max_workers = 1 + variant % 2;
    if (variant == 1) spec.precision = Precision::bf16;
    if (variant == 2) spec.options.exchange.shard_optimizer = true;
    if (variant == 3) spec.options.part_map.balanced = true;
    if (variant == 4) spec.options.batch_norm = BatchNorm::global;
    RunSpec audited = spec;
    audited.options.safeguards.audit_every_steps = 1;
    expect_the_same({spec, audited}, open_small("synthetic:103x1x8x8:5").pair);
  }
}

TEST(PartAudits, DoesNotTakeGradientsForWrongThatAreNoLongerFiniteOnAllRanks) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    RunSpec spec = small_run(audited_network(), {.kind = Exchange::exact});
    spec.ranks = test_world().size();
    spec.precision = precision;
    spec.options.learning_rate.base = 1e20;
    spec.options.safeguards.audit_every_steps = 1;
    const std::string text = reports_of({spec}, open_small("synthetic:103x1x8x8:5").pair).front();
    EXPECT_NE(lines_of(text, "ended: ").find("is no longer a finite number at step "), std::string::npos) << text;
  }
}

TEST(PartAudits, IsCountedInTheRecordOfTheEpoch) {
  AuditedRun run;
  run.options.safeguards.audit_every_steps = 5;
  const auto outcome = outcome_of(test_world(), run, {});
  ASSERT_EQ(outcome.epochs.size(), 2U);  // of 6 steps
  EXPECT_EQ(outcome.epochs[0].audits, 1);
  EXPECT_EQ(outcome.epochs[1].audits, 1);
  run.options.safeguards.audit_every_steps = 0;
  EXPECT_FALSE(outcome_of(test_world(), run, {}).epochs[0].audits);
}

TEST(PartAudits, NeedsAnExactExchange) {
  AuditedRun run;
  run.options.exchange.kind = Exchange::ring;
  EXPECT_EQ(thrown_by([&] { outcome_of(test_world(), run, {}); }).source(), ErrorSource::usage);
}

}  // namespace
}  // namespace tutti
