#include "backend/cuda/engine_table.hpp"

#include <gtest/gtest.h>

namespace tutti::cuda {
namespace {

constexpr ConvolutionShape kShape{.samples = 256,
                                  .channels = 64,
                                  .height = 28,
                                  .width = 30,
                                  .outputs = 128,
                                  .kernel_height = 3,
                                  .kernel_width = 3,
                                  .stride = 2,
                                  .padding = 1,
                                  .precision = Precision::bf16};
const std::string kForward = describe(ConvolutionPass::forward, kShape);
const std::string kGradient = describe(ConvolutionPass::weight_gradient, kShape);
const EngineChoice kChoice{57, {{2, 14}, {17, -1}}};

constexpr auto kCudnn = "cuDNN 9.19.0";
constexpr auto kDevice = "NVIDIA H200";

TEST(EngineTable, WritesSelfContainedLines) {
  EngineTable table({kCudnn, kDevice});
  EXPECT_EQ(table.text(), "");
  table.note(kForward, kChoice);
  EXPECT_EQ(table.text(),
            "cuDNN 9.19.0 | NVIDIA H200 | forward bf16 256x28x30x64 to 128, 3x3 stride 2 padding 1 | 57 2=14 17=-1\n");
}

TEST(EngineTable, ReadsTheLinesThatItWrote) {
  EngineTable table({kCudnn, kDevice});
  table.note(kForward, kChoice);
  table.note(kGradient, {3});
  EngineTable other({kCudnn, kDevice});
  EXPECT_EQ(other.find(kForward), std::nullopt);
  EXPECT_TRUE(other.adopt(table.text()));
  EXPECT_EQ(other.find(kForward), kChoice);
  EXPECT_EQ(other.find(kGradient), EngineChoice{3});
  EXPECT_EQ(other.text(), table.text());
}

TEST(EngineTable, MarksChoicesThatWereNotTimed) {
  EngineTable table({kCudnn, kDevice});
  table.note(kForward, kChoice, ChosenBy::proposal);
  EXPECT_TRUE(table.text().ends_with(" | 57 2=14 17=-1 untimed\n")) << table.text();
  EngineTable other({kCudnn, kDevice});
  EXPECT_TRUE(other.adopt(table.text()));
  EXPECT_EQ(other.find(kForward), kChoice);
  EXPECT_EQ(other.text(), table.text());
}

TEST(EngineTable, DistinguishesAllPassesAndShapes) {
  const std::string first = describe(ConvolutionPass::forward, kShape);
  EXPECT_NE(describe(ConvolutionPass::input_gradient, kShape), first);
  for (std::int64_t ConvolutionShape::*extent :
       {&ConvolutionShape::samples, &ConvolutionShape::channels, &ConvolutionShape::height, &ConvolutionShape::width,
        &ConvolutionShape::outputs, &ConvolutionShape::kernel_height, &ConvolutionShape::kernel_width,
        &ConvolutionShape::stride, &ConvolutionShape::padding}) {
    ConvolutionShape other = kShape;
    ++(other.*extent);
    EXPECT_NE(describe(ConvolutionPass::forward, other), first);
  }
  ConvolutionShape other = kShape;
  other.precision = Precision::tf32;
  EXPECT_NE(describe(ConvolutionPass::forward, other), first);
}

TEST(EngineTable, IgnoresLinesOfOtherLibrariesAndDevices) {
  EngineTable table({kCudnn, kDevice});
  table.note(kForward, kChoice);
  for (const EngineOwner& owner : {EngineOwner{"cuDNN 9.20.0", kDevice}, EngineOwner{kCudnn, "NVIDIA H100"}}) {
    EngineTable other(owner);
    EXPECT_FALSE(other.adopt(table.text()));
    EXPECT_EQ(other.find(kForward), std::nullopt);
    EXPECT_EQ(other.text(), "");
    other.note(kGradient, {3});
    EXPECT_TRUE(other.adopt(table.text() + other.text())) << "lines of both";
    EXPECT_EQ(other.find(kForward), std::nullopt);
  }
  EXPECT_TRUE(table.adopt(""));
}

TEST(EngineTable, FindsNothingInDamagedLines) {
  EngineTable table({kCudnn, kDevice});
  table.note(kForward, kChoice);
  const std::string line = table.text();
  for (const std::string& damaged :
       {line.substr(0, line.size() - 4) + "\n", line.substr(0, line.rfind('=')) + "\n", line.substr(0, 20),
        line.substr(0, line.rfind('|') + 1) + "\n", std::string("\n \n"), line.substr(0, line.size() - 1) + " x=1\n"}) {
    EngineTable other({kCudnn, kDevice});
    other.adopt(damaged);
    EXPECT_EQ(other.find(kForward), std::nullopt) << damaged;
  }
}

}  // namespace
}  // namespace tutti::cuda
