// Tests cuDNN's proposals for a GPU that is not present.

#include "backend/absent_gpus.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace tutti::cuda {
namespace {

const CudnnTarget& h200() {
  static const AbsentGpu gpu(kH200);
  return gpu;
}

constexpr ConvolutionShape kShape{.samples = 64,
                                  .channels = 64,
                                  .height = 14,
                                  .width = 14,
                                  .outputs = 128,
                                  .kernel_height = 3,
                                  .kernel_width = 3,
                                  .padding = 1,
                                  .precision = Precision::bf16};

TEST(CudnnGraph, BuildsAnEngineAgainFromItsChoice) {
  for (const auto pass :
       {ConvolutionPass::forward, ConvolutionPass::weight_gradient, ConvolutionPass::input_gradient}) {
    const CudnnGraph graph(h200(), pass, kShape);
    const auto engines = graph.engines();
    ASSERT_GT(engines.size(), 2u);
    for (const CudnnEngine& engine : engines) {
      const auto again = graph.engine(engine.choice());
      ASSERT_TRUE(again.has_value());
      EXPECT_EQ(again->choice(), engine.choice());
      EXPECT_EQ(again->scratch_bytes, engine.scratch_bytes);
    }
  }
}

// The candidates of cuDNN's lists, where one engine in many settings may come first.
TEST(CudnnGraph, ProposesAFewSettingsOfSeveralEngines) {
  for (const Precision precision : {Precision::bf16, Precision::tf32, Precision::fp32}) {
    ConvolutionShape shape = kShape;
    shape.precision = precision;
    for (const auto pass :
         {ConvolutionPass::forward, ConvolutionPass::weight_gradient, ConvolutionPass::input_gradient}) {
      const CudnnGraph graph(h200(), pass, shape);
      std::vector<EngineChoice> choices;
      std::map<std::int64_t, int> settings;
      for (const CudnnEngine& engine : graph.engines()) {
        choices.push_back(engine.choice());
        ++settings[choices.back().engine];
        EXPECT_EQ(std::ranges::count(choices, choices.back()), 1) << describe(pass, shape);
      }
      EXPECT_LE(choices.size(), kMaxCandidates);
      EXPECT_GE(settings.size(), 3U) << describe(pass, shape);
      for (const auto& [engine, count] : settings) EXPECT_LE(count, 3) << engine;
      std::vector<EngineChoice> again;
      for (const CudnnEngine& engine : graph.engines()) again.push_back(engine.choice());
      EXPECT_EQ(again, choices);
      const auto first = graph.engines(1);
      ASSERT_EQ(first.size(), 1U);
      EXPECT_EQ(first[0].choice(), choices[0]);
    }
  }
}

TEST(CudnnGraph, RefusesAnEngineOfAnotherVersionOrPrecision) {
  const CudnnGraph graph(h200(), ConvolutionPass::forward, kShape);
  EXPECT_FALSE(graph.engine({100000}).has_value());
  ConvolutionShape shape = kShape;
  shape.precision = Precision::tf32;
  const auto in_tf32 = CudnnGraph(h200(), ConvolutionPass::forward, shape).engines();
  ASSERT_FALSE(in_tf32.empty());
  shape.precision = Precision::fp32;
  const CudnnGraph in_fp32(h200(), ConvolutionPass::forward, shape);
  EXPECT_FALSE(in_fp32.engine(in_tf32[0].choice()).has_value()) << "the fastest cuts inputs to tf32";
}

}  // namespace
}  // namespace tutti::cuda
