// Asks cuDNN which fusions of ResNet-18's convolutions with batch norm it has in fp16 and in bf16, on GPUs that are not
// present, and compares the answers with cudnn_fusions.txt.

#include "backend/absent_gpus.hpp"
#include "backend/cudnn_fusion.hpp"
#include "backend/recorded_answers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tutti::cuda {

namespace {

// The fewest configurations for any of ResNet-18's convolutions of 1x28x28 that are followed by a batch norm.
int fewest_precompiled(const CudnnTarget& gpu, cudnnDataType_t type, const FusionCase& fusion) {
  int fewest = 1000;
  for (const ConvolutionShape& shape :
       {convolution(8, 64, 28), convolution(64, 64, 28), convolution(64, 128, 28, 2), convolution(128, 128, 14),
        convolution(128, 256, 14, 2), convolution(256, 256, 7), convolution(256, 512, 7, 2),
        convolution(512, 512, 4)}) {
    Fusion graph(type, shape);
    fusion.build(graph);
    fewest = std::min(fewest, graph.precompiled(gpu));
  }
  return fewest;
}

TEST(CudnnFusions, AreOfferedInFp16Only) {
  Answers answers;
  for (const FusionCase& fusion : fusions()) {
    for (const auto& [name, type] : {std::pair{"fp16", CUDNN_DATA_HALF}, std::pair{"bf16", CUDNN_DATA_BFLOAT16}}) {
      std::string& cells = answers[fmt::format("{}: {}", name, fusion.name)];
      for (const GpuProperties& gpu : kGpus)
        cells += fmt::format("{}{}", cells.empty() ? "" : " | ", fewest_precompiled(AbsentGpu(gpu), type, fusion));
    }
  }
  expect_recorded("cudnn_fusions.txt", answers);
}

}  // namespace
}  // namespace tutti::cuda
