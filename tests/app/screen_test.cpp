#include "screen.hpp"

#include "tutti/train/trainer_options.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

using Digests = std::vector<std::uint64_t>;
using Found = std::vector<WrongUnit>;

constexpr const char* kKind = "cpu: AVX2";

ScreenedUnit unit(const Digests& digests, std::optional<std::size_t> changed = {}, const char* kind = kKind) {
  ScreenedUnit unit{.host = "n1", .name = "core", .kind = kind, .digests = digests};
  unit.changed = changed;
  return unit;
}

Found found(const std::vector<ScreenedUnit>& units, const Digests& shipped = {}) {
  return find_wrong(units, {{kKind, shipped}});
}

TEST(FindWrong, FindsNothingInEqualUnitsAndComparesNoOtherKinds) {
  EXPECT_EQ(found({unit({1, 2}), unit({1, 2}), unit({3, 4}, {}, "cuda: H200")}), Found());
  EXPECT_EQ(found({unit({1, 2})}), Found());
}

TEST(FindWrong, LetsTheMajorityDecideAndNamesTheFirstDifference) {
  EXPECT_EQ(found({unit({1, 2, 3}), unit({1, 5, 6}), unit({1, 2, 3})}), (Found{{1, WrongReason::minority, 1, 2}}));
  const Digests right{1, 2};
  EXPECT_EQ(found({unit({9, 2}), unit(right), unit(right), unit({1, 9}), unit(right)}),
            (Found{{0, WrongReason::minority, 0, 3}, {3, WrongReason::minority, 1, 3}}));
}

TEST(FindWrong, NamesUnitsThatDoNotRepeatTheirResultsWhateverTheOthersSay) {
  EXPECT_EQ(found({unit({1, 2}, 1), unit({1, 2})}), (Found{{0, WrongReason::changed, 1}}));
  EXPECT_EQ(found({unit({1, 2}, 0)}), (Found{{0, WrongReason::changed, 0}}));
  // They have no vote.
  EXPECT_EQ(found({unit({8, 2}, 0), unit({8, 2}, 1), unit({1, 2}), unit({1, 2}), unit({8, 2})}),
            (Found{{0, WrongReason::changed, 0}, {1, WrongReason::changed, 1}, {4, WrongReason::minority, 0, 2}}));
}

TEST(FindWrong, NamesAllUnitsOfATie) {
  EXPECT_EQ(found({unit({1, 2}), unit({1, 3})}),
            (Found{{0, WrongReason::undecided, 1}, {1, WrongReason::undecided, 1}}));
  // Two threads of one core may be wrong alike: two of four are no majority.
  EXPECT_EQ(found({unit({1, 2}), unit({1, 2}), unit({1, 3}), unit({4, 2})}).size(), 4U);
}

TEST(FindWrong, LetsShippedDigestsDecideATieAndAboutAUnitThatIsAlone) {
  EXPECT_EQ(found({unit({1, 2}), unit({1, 3})}, {1, 3}), (Found{{0, WrongReason::minority, 1, 1}}));
  EXPECT_EQ(found({unit({1, 2}), unit({1, 2}), unit({1, 3})}, {1, 3}),
            (Found{{0, WrongReason::minority, 1, 1}, {1, WrongReason::minority, 1, 1}}));
  EXPECT_EQ(found({unit({1, 2})}, {7, 2}), (Found{{0, WrongReason::unlike_shipped, 0}}));
  EXPECT_EQ(found({unit({1, 2})}, {1, 2}), Found());
}

TEST(FindWrong, AcceptsUnitsThatAgreeAgainstShippedDigests) {  // which may be those of other libraries
  EXPECT_EQ(found({unit({1, 2}), unit({1, 2})}, {7, 2}), Found());
  EXPECT_EQ(found({unit({1, 2}), unit({1, 2}), unit({3, 2})}, {7, 2}), (Found{{2, WrongReason::minority, 0, 2}}));
}

ScreenPlan plan(int number) {
  return {.host = "n1",
          .name = fmt::format("core {}", number),
          .make_backend = [](Precision precision) { return make_cpu_backend(precision); },
          .number = number};
}

// If bits were to change: src/app/screen_digests.inc holds what this prints.
TEST(Screen, ComputesTheDigestsThatAreShippedForThisKindOfProcessor) {
  const ScreenedUnit screened = screen({plan(0)}, 0).front();
  ASSERT_EQ(screened.digests.size(), screened_values().size());
  std::string list;
  for (std::size_t i = 0; i < screened.digests.size(); ++i) {
    list += fmt::format("{:#018x},{}", screened.digests[i], i % 5 == 4 ? "\n" : " ");
  }
  EXPECT_TRUE(screened.digests == shipped_digests(screened.kind)) << list;
}

// Layers of the same name are in two precisions, and fp32 comes first.
TEST(Screen, NamesTheFirstValueThatAFaultMakesWrong) {
  for (const auto& [layer, pass] : {std::pair("conv2", Phase::forward), std::pair("block2.shortcut", Phase::backward),
                                    std::pair("head", Phase::forward), std::pair("dropout", Phase::backward)}) {
    SCOPED_TRACE(layer);
    Fault fault{.kind = FaultKind::wrong, .rank = 1, .first_step = 1, .last_step = 1000};
    fault.phase = pass;
    fault.wrong.layer = layer;
    fault.wrong.element = 5;
    std::vector<ScreenPlan> plans{plan(0), plan(1), plan(2)};
    for (ScreenPlan& each : plans) each.faults = {fault};
    const auto units = screen(plans, 0);
    const auto wrong = find_wrong(units, {});
    ASSERT_EQ(wrong.size(), 1U);
    EXPECT_EQ(wrong.front().unit, 1U);
    EXPECT_EQ(wrong.front().reason, WrongReason::minority);
    const ScreenedValue value = screened_values().at(wrong.front().digest);
    EXPECT_EQ(value.layer, layer);
    EXPECT_EQ(value.pass, name_of(pass));
    EXPECT_EQ(value.precision, Precision::fp32);
  }
}

}  // namespace
}  // namespace tutti
