// The choice among the plans of a convolution, some of which fail or are wrong.

#include "backend/cuda/plan_search.hpp"

#include "backend/cuda/plan_check.hpp"
#include "backend/cuda/runtime.hpp"
#include "standin/control.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

namespace tutti::cuda {
namespace {

using testing::Not;

enum class Fails { never, in_graphs, always, unwritten };

constexpr ConvolutionShape kShape{.samples = 2, .channels = 4, .height = 3, .width = 3, .outputs = 4};

// Computes by plain loops.
class TestPlan final : public ConvolutionPlan {
 public:
  TestPlan(std::int64_t engine, Fails fails, std::shared_ptr<ConvolutionPlan> loops)
      : engine_(engine), fails_(fails), loops_(std::move(loops)) {}

  EngineChoice choice() const override { return {.engine = engine_}; }
  std::size_t scratch_bytes() const override { return loops_->scratch_bytes(); }
  void run(CudaStream& stream, const ConvolutionTensors& tensors, void* scratch) override {
    cudaStreamCaptureStatus capture{};
    check(cudaStreamIsCapturing(native(stream), &capture));
    const bool is_captured = capture != cudaStreamCaptureStatusNone;
    if (fails_ == Fails::always || (fails_ == Fails::in_graphs && is_captured)) check(CUDNN_STATUS_EXECUTION_FAILED);
    if (fails_ != Fails::unwritten) loops_->run(stream, tensors, scratch);
  }

 private:
  std::int64_t engine_;
  Fails fails_;
  std::shared_ptr<ConvolutionPlan> loops_;
};

// Returns the number of the plan, or -1.
std::int64_t fastest(PlanSearch& search, const std::vector<Fails>& kinds) {
  const auto library = make_convolution_library(0);
  ConvolutionPlans plans;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const auto loops = library->propose(ConvolutionPass::forward, kShape, 1).front();
    plans.push_back(std::make_shared<TestPlan>(static_cast<std::int64_t>(i / 2), kinds[i], loops));
  }
  const auto chosen = search.fastest(ConvolutionPass::forward, kShape, plans, Stopwatch(), 0.25);
  return chosen ? std::ranges::find(plans, chosen) - plans.begin() : -1;
}

TEST(PlanSearch, ChoosesNoPlanThatFailsWhereItIsUsed) {
  using enum Fails;
  PlanSearch in_graphs_too(0, true);
  EXPECT_EQ(fastest(in_graphs_too, {always, in_graphs, never, in_graphs}), 2);
  EXPECT_EQ(fastest(in_graphs_too, {always, in_graphs, always}), 1) << "the only one that runs at all";
  PlanSearch without_graphs(0, false);
  EXPECT_EQ(fastest(without_graphs, {always, in_graphs, always}), 1);
}

TEST(PlanSearch, DropsAPlanThatLeavesItsResultUnwritten) {
  PlanSearch search(0, true);
  EXPECT_EQ(fastest(search, {Fails::unwritten, Fails::never}), 1);
  EXPECT_THAT(search.summary(), mentions(", 1 dropped as inexact, "));
  EXPECT_EQ(fastest(search, {Fails::unwritten, Fails::always}), -1);
  EXPECT_THAT(search.reason(), mentions("1 fail, 1 is off by at least "));
}

TEST(PlanSearch, SummarizesWhatItTried) {
  PlanSearch search(0, true);
  EXPECT_EQ(search.summary(), "");
  fastest(search, {Fails::never, Fails::never, Fails::in_graphs});
  fastest(search, {Fails::never, Fails::never});
  EXPECT_THAT(search.summary(), mentions("plan search: 2 passes of convolutions, 5 candidates of 2 engines in ",
                                         " s (0.5 s building plans)"));
  EXPECT_THAT(search.summary(), Not(mentions("limit")));
  EXPECT_THAT(search.summary(), Not(mentions("dropped")));
  EXPECT_TRUE(search.has_time());
}

TEST(PlanSearch, EndsAtItsTimeLimit) {
  PlanSearch search(0, true, 1e-9);
  EXPECT_TRUE(search.has_time());
  fastest(search, {Fails::never, Fails::never});
  EXPECT_FALSE(search.has_time());
  EXPECT_THAT(search.summary(), mentions("time limit"));
}

TEST(PlanSearch, TakesTheFirstPlanUncheckedIfTheMemoryIsTooSmall) {
  ::setenv("TUTTI_STANDIN_MEMORY", "1", 1);
  PlanSearch search(0, true);
  const Buffer most = allocate_cuda(0, static_cast<std::size_t>(free_bytes(0)) - (1 << 10));
  EXPECT_EQ(fastest(search, {Fails::always, Fails::never}), 0);
  EXPECT_EQ(search.summary(), "plan search: 1 passes not checked for lack of memory");
  ::unsetenv("TUTTI_STANDIN_MEMORY");
}

// Runs that take given times.
struct GivenRuns {
  std::vector<float> milliseconds;
  std::vector<float> loading{};  // more in the first run, in which the host is as late
  std::vector<int> runs = std::vector<int>(milliseconds.size());
  std::vector<std::size_t> unprepared{};

  std::optional<std::size_t> fastest(const std::vector<std::int64_t>& engines) {
    return choose_fastest(engines, {.run = [this](std::size_t i) -> std::optional<RunTime> {
                                      const float late = runs[i]++ == 0 && !loading.empty() ? loading[i] : 0;
                                      return RunTime{milliseconds[i], milliseconds[i] + late};
                                    },
                                    .prepare = [this](std::size_t i) { return std::ranges::count(unprepared, i) == 0; },
                                    .time =
                                        [this](std::size_t i) {
                                          ++runs[i];
                                          return milliseconds[i];
                                        }});
  }
  int all_runs() const { return std::accumulate(runs.begin(), runs.end(), 0); }
};

TEST(PlanSearch, RunsOnlyThoseAgainThatAreNearlyAsFastAsTheBest) {
  GivenRuns given{.milliseconds = {9, 2, 1.9F, 2.2F, 3, 2.4F, 40}};
  EXPECT_EQ(given.fastest({0, 1, 2, 3, 4, 5, 6}), 2U);
  EXPECT_EQ(given.runs, (std::vector{1, 3, 3, 3, 1, 1, 1}));
}

TEST(PlanSearch, DoesNotTryOtherSettingsOfAnEngineThatIsFarTooSlow) {
  GivenRuns given{.milliseconds = {1, 4, 3.5F, 2, 1.5F, 0.5F}};
  EXPECT_EQ(given.fastest({1, 2, 2, 3, 3, 1}), 5U);
  EXPECT_EQ(given.runs, (std::vector{1, 1, 0, 1, 1, 1}));
}

TEST(PlanSearch, RunsThoseAgainThatMayHaveWaitedForTheHost) {
  GivenRuns given{.milliseconds = {5, 1, 2, 1.1F}, .loading = {30, 30, 30, 0}};
  EXPECT_EQ(given.fastest({0, 1, 2, 3}), 1U);
  EXPECT_EQ(given.runs, (std::vector{1, 4, 1, 3}));
}

TEST(PlanSearch, PrefersAPlanThatCanBePrepared) {
  GivenRuns given{.milliseconds = {1, 5, 5.5F}, .unprepared = {0}};
  EXPECT_EQ(given.fastest({0, 1, 2}), 1U);
  GivenRuns none{.milliseconds = {2, 1}, .unprepared = {0, 1}};
  EXPECT_EQ(none.fastest({0, 1}), 1U);
}

// Before, a candidate ran 4 times, or 7 times if it was at most twice as slow as the best so far.
TEST(PlanSearch, RunsAQuarterAsOftenAsBefore) {
  std::vector<float> milliseconds;
  std::vector<std::int64_t> engines;
  std::vector<float> loading;
  int before = 0;
  for (int i = 0; i < 24; ++i) {
    engines.push_back(i / 3);
    milliseconds.push_back(static_cast<float>(engines.back() + 1) * (1 + 0.1F * static_cast<float>(i % 3)));
    loading.push_back(i % 3 == 0 ? 5.0F : 0.0F);
    before += milliseconds.back() <= 2 ? 7 : 4;
  }
  GivenRuns given{.milliseconds = milliseconds, .loading = loading};
  EXPECT_EQ(given.fastest(engines), 0U);
  EXPECT_LE(4 * given.all_runs(), before) << given.all_runs() << " runs, before " << before;
}

// The shapes have odd sizes, strides, padding, dilation and groups.
std::vector<ConvolutionShape> shapes(Precision precision) {
  std::vector<ConvolutionShape> all{
      {.samples = 3, .channels = 8, .height = 7, .width = 5, .outputs = 16},
      {.samples = 2, .channels = 8, .height = 9, .width = 6, .outputs = 8, .kernel_height = 5, .kernel_width = 3},
      {.samples = 5, .channels = 16, .height = 8, .width = 8, .outputs = 24, .kernel_height = 3, .kernel_width = 3}};
  all[1].padding = 2;
  all[1].stride = 2;
  all[2].groups = 2;
  all[2].dilation = 2;
  all[2].padding = 1;
  all[2].stride = 3;
  for (ConvolutionShape& shape : all) shape.precision = precision;
  return all;
}

// Of an engine in two that is off by `error`, in one pass.
std::int64_t engine_beside(const char* error, ConvolutionPass pass, const ConvolutionShape& shape, bool searches) {
  ::setenv("TUTTI_STANDIN_INEXACT", fmt::format("{} 1", error).c_str(), 1);
  ConvolutionPlanner planner({.precision = shape.precision, .search_plans = searches});
  const std::int64_t engine = planner.plan(pass, shape)->choice().engine;
  const std::string dropped = "1 dropped as inexact";
  EXPECT_EQ(planner.search_summary().find(dropped) != std::string::npos, engine == 1) << planner.search_summary();
  ::unsetenv("TUTTI_STANDIN_INEXACT");
  return engine;
}

class PlanChecks : public testing::TestWithParam<ConvolutionPass> {};
INSTANTIATE_TEST_SUITE_P(Passes, PlanChecks,
                         testing::Values(ConvolutionPass::forward, ConvolutionPass::input_gradient,
                                         ConvolutionPass::weight_gradient));

TEST_P(PlanChecks, FindAnEngineThatIsOff) {
  for (const bool searches : {true, false}) {
    for (const ConvolutionShape& shape : shapes(Precision::fp32))
      EXPECT_EQ(engine_beside("1e-3", GetParam(), shape, searches), 1);
    for (const ConvolutionShape& shape : shapes(Precision::tf32))
      EXPECT_EQ(engine_beside("5e-3", GetParam(), shape, searches), 1);
    for (const ConvolutionShape& shape : shapes(Precision::bf16))
      EXPECT_EQ(engine_beside("2e-2", GetParam(), shape, searches), 1);
  }
}

TEST_P(PlanChecks, AllowWhatThePrecisionAllows) {
  for (const ConvolutionShape& shape : shapes(Precision::fp32))
    EXPECT_EQ(engine_beside("1e-6", GetParam(), shape, false), 0);
  for (const ConvolutionShape& shape : shapes(Precision::tf32))
    EXPECT_EQ(engine_beside("6e-4", GetParam(), shape, false), 0);
  for (const ConvolutionShape& shape : shapes(Precision::bf16))
    EXPECT_EQ(engine_beside("0", GetParam(), shape, false), 0);
}

TEST_P(PlanChecks, RefuseAConvolutionThatNoEngineComputesRightly) {
  ::setenv("TUTTI_STANDIN_INEXACT", "1e-3 3", 1);
  ::setenv("TUTTI_STANDIN_ENGINES", "3", 1);
  for (const bool searches : {true, false}) {
    ConvolutionPlanner planner({.precision = Precision::fp32, .search_plans = searches});
    EXPECT_THAT(thrown_by([&] { planner.plan(GetParam(), kShape); }),
                reports(ErrorSource::usage,
                        fmt::format("computes the convolution {} fp32 2x3x3x4 to 4, 1x1 ", name_of(GetParam())),
                        "are off by at least 1.0e-03 of the result, where 1.0e-05 is allowed"));
  }
  ::unsetenv("TUTTI_STANDIN_ENGINES");
  ::unsetenv("TUTTI_STANDIN_INEXACT");
}

TEST_P(PlanChecks, AreNotMadeOfKnownChoices) {
  ConvolutionPlanner first({.precision = Precision::fp32});
  first.plan(GetParam(), kShape);
  const auto launches_of_plan = [&](ConvolutionPlanner& planner) {
    const auto before = standin::enqueued_so_far();
    planner.plan(GetParam(), kShape);
    const auto after = standin::enqueued_so_far();
    std::int64_t calls = 0;
    for (const auto& [kind, count] : after.calls) calls += count;
    for (const auto& [kind, count] : before.calls) calls -= count;
    return calls;
  };
  ConvolutionPlanner second({.precision = Precision::fp32});
  EXPECT_TRUE(second.load_algorithm_cache(first.algorithm_cache()));
  EXPECT_EQ(launches_of_plan(second), 0);
  ConvolutionPlanner third({.precision = Precision::fp32});
  EXPECT_GT(launches_of_plan(third), 0);
}

}  // namespace
}  // namespace tutti::cuda
