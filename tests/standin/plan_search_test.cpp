// The choice among the plans of a convolution, some of which fail.

#include "backend/cuda/plan_search.hpp"

#include "backend/cuda/runtime.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

namespace tutti::cuda {
namespace {

using testing::HasSubstr;
using testing::Not;

enum class Fails { never, in_graphs, always };

class TestPlan final : public ConvolutionPlan {
 public:
  TestPlan(std::int64_t engine, Fails fails) : engine_(engine), fails_(fails) {}

  std::int64_t engine() const override { return engine_; }
  std::size_t scratch_bytes() const override { return 100; }
  void run(CudaStream& stream, const ConvolutionTensors& tensors, void* scratch) override {
    cudaStreamCaptureStatus capture{};
    check(cudaStreamIsCapturing(native(stream), &capture));
    const bool is_captured = capture != cudaStreamCaptureStatusNone;
    if (fails_ == Fails::always || (fails_ == Fails::in_graphs && is_captured)) check(CUDNN_STATUS_EXECUTION_FAILED);
    check(cudaMemsetAsync(scratch, 1, 100, native(stream)));
    check(cudaMemsetAsync(tensors.output, 1, 16, native(stream)));
  }

 private:
  std::int64_t engine_;
  Fails fails_;
};

constexpr ConvolutionShape kShape{.samples = 2, .channels = 4, .height = 3, .width = 3, .outputs = 4};

std::size_t fastest(PlanSearch& search, const std::vector<Fails>& plans) {
  std::vector<std::unique_ptr<ConvolutionPlan>> all;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    all.push_back(std::make_unique<TestPlan>(static_cast<std::int64_t>(i / 2), plans[i]));
  }
  return search.fastest(kShape, all, Stopwatch());
}

TEST(PlanSearch, ChoosesNoPlanThatFailsWhereItIsUsed) {
  using enum Fails;
  PlanSearch in_graphs_too(0, true);
  EXPECT_EQ(fastest(in_graphs_too, {always, in_graphs, never, in_graphs}), 2U);
  EXPECT_EQ(fastest(in_graphs_too, {always, in_graphs, always}), 1U) << "the only one that runs at all";
  PlanSearch without_graphs(0, false);
  EXPECT_EQ(fastest(without_graphs, {always, in_graphs, always}), 1U);
}

TEST(PlanSearch, SummarizesWhatItTried) {
  PlanSearch search(0, true);
  EXPECT_EQ(search.summary(), "");
  fastest(search, {Fails::never, Fails::never, Fails::in_graphs});
  fastest(search, {Fails::never, Fails::never});
  EXPECT_THAT(search.summary(), HasSubstr("plan search: 2 passes of convolutions, 5 candidates of 2 engines, 0."));
  EXPECT_THAT(search.summary(), Not(HasSubstr("limit")));
  EXPECT_TRUE(search.has_time());
}

TEST(PlanSearch, EndsAtItsTimeLimit) {
  PlanSearch search(0, true, 1e-9);
  EXPECT_TRUE(search.has_time());
  fastest(search, {Fails::never, Fails::never});
  EXPECT_FALSE(search.has_time());
  EXPECT_THAT(search.summary(), HasSubstr("time limit"));
}

TEST(PlanSearch, TakesTheFirstPlanIfTheMemoryIsTooSmall) {
  ::setenv("TUTTI_STANDIN_MEMORY", "1", 1);
  PlanSearch search(0, true);
  const Buffer most = allocate_cuda(0, static_cast<std::size_t>(free_bytes(0)) - (1 << 16));
  EXPECT_EQ(fastest(search, {Fails::always, Fails::never}), 0U);
  EXPECT_EQ(search.summary(), "");
  ::unsetenv("TUTTI_STANDIN_MEMORY");
}

}  // namespace
}  // namespace tutti::cuda
