// Asks cuDNN for the candidates of every pass of a convolution or linear layer that the built-in networks and the tests
// have, on GPUs that are not present.

#include "tutti/nn/model_file.hpp"
#include "tutti/nn/network.hpp"

#include "backend/absent_gpus.hpp"
#include "backend/cuda/weights.hpp"
#include "backend/layer_cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace tutti::cuda {
namespace {

struct Pass {
  ConvolutionPass pass;
  ConvolutionShape shape;
};
using Passes = std::map<std::string, Pass>;  // by description

struct WeightedLayerCase {
  LayerSpec spec;
  Shape sample;
  std::int64_t batch;
  bool reads_image = false;
};

// Adds the passes of a convolution or linear layer.
void add_passes(Passes& passes, const WeightedLayerCase& layer, Precision precision) {
  if (!std::holds_alternative<Conv2dSpec>(layer.spec) && !std::holds_alternative<LinearSpec>(layer.spec)) return;
  const auto* const convolution = std::get_if<Conv2dSpec>(&layer.spec);
  if (convolution != nullptr && convolution->groups * convolution->dilation > 1) return;
  const ElementType type = precision == Precision::bf16 ? ElementType::bf16 : ElementType::f32;
  const ActivationSpec input = activation_of(layer.sample.batch_of(layer.batch), type);
  const ConvolutionShape shape = weighted_layer_of(precision, layer.spec, input).convolution;
  for (const auto pass :
       {ConvolutionPass::forward, ConvolutionPass::weight_gradient, ConvolutionPass::input_gradient}) {
    if (pass == ConvolutionPass::input_gradient && layer.reads_image) continue;
    passes.emplace(describe(pass, shape), Pass{pass, shape});
  }
}

// Batches: one sample, three, the last batch of an epoch, that of jobs/*.toml or of the documents, and a large one.
// That of resnet50 is as large as an A100 has memory for in f32.
struct Workload {
  std::string model;
  Shape sample;
  int classes;
  std::vector<std::int64_t> batches;
};

std::vector<Workload> workloads() {
  const Shape kLarge{3, 224, 224};
  const std::vector<std::int64_t> kBatchesOfLarge{1, 3, 143, 256, 512};
  return {{"lenet", {1, 28, 28}, 10, {1, 3, 96, 128, 256, 8192}}, {"lenet-avg", {1, 28, 28}, 10, {1, 3, 96, 256, 8192}},
          {"mlp", {1, 28, 28}, 10, {1, 3, 96, 128, 8192}},        {"linear", {1, 28, 28}, 10, {1, 3, 96, 128, 8192}},
          {"resnet18", {1, 28, 28}, 10, {1, 3, 96, 256, 8192}},   {"resnet18", {3, 32, 32}, 10, {1, 3, 80, 128, 8192}},
          {"resnet34", {3, 32, 32}, 10, {1, 3, 80, 128, 8192}},   {"resnet18-imagenet", kLarge, 1000, kBatchesOfLarge},
          {"resnet34-imagenet", kLarge, 1000, kBatchesOfLarge},   {"resnet50", kLarge, 1000, kBatchesOfLarge},
          {"vgg11", {3, 32, 32}, 10, {1, 3, 80, 128, 8192}}};
}

void add_passes(Passes& passes, const Workload& workload, Precision precision) {
  const Network network(built_in_model(workload.model), workload.sample, workload.classes);
  for (const NetworkLayer& layer : network.layers()) {
    for (const std::int64_t batch : workload.batches)
      add_passes(passes, {layer.spec, layer.input, batch, layer.from == kImage}, precision);
  }
}

Passes all_passes() {
  for (const std::string& name : built_in_model_names())
    EXPECT_GT(std::ranges::count(workloads(), name, &Workload::model), 0) << name << " is not in workloads()";
  Passes passes;
  for (const Precision precision : {Precision::bf16, Precision::fp32, Precision::tf32}) {
    for (const Workload& workload : workloads()) add_passes(passes, workload, precision);
    for (const auto& cases : {testing_support::all_cases(), testing_support::small_cases()}) {
      for (const testing_support::NetworkCase& network : cases) {
        Shape sample = network.sample;
        for (const LayerSpec& spec : network.layers) {
          add_passes(passes, {spec, sample, network.batch}, precision);
          sample = output_shape(spec, sample);
        }
      }
    }
  }
  return passes;
}

// Asks for each GPU in a thread of its own.
void expect_offers(const Passes& passes) {
  std::vector<std::jthread> asking;
  for (const GpuProperties& gpu : kGpus) {
    asking.emplace_back([&] {
      const AbsentGpu target(gpu);
      for (const auto& [description, pass] : passes) {
        const auto engines = CudnnGraph(target, pass.pass, pass.shape).engines();
        EXPECT_FALSE(engines.empty()) << description << " on " << gpu.name;
        EXPECT_TRUE(std::ranges::none_of(engines, &CudnnEngine::is_compiled_at_run_time))
            << description << " on " << gpu.name;
      }
    });
  }
}

TEST(CudnnPasses, AreOfferedForResnet18InBf16) {
  Passes passes;
  add_passes(passes, {"resnet18", {1, 28, 28}, 10, {1, 256}}, Precision::bf16);
  expect_offers(passes);
}

TEST(CudnnPasses, AreOfferedForAllNetworks) { expect_offers(all_passes()); }

TEST(CudnnPasses, AreNotOfferedInBf16OnGpusThatAreTooOld) {
  const AbsentGpu gpu(kT4);
  Passes passes;
  add_passes(passes, {"lenet", {1, 28, 28}, 10, {128}}, Precision::bf16);
  for (const auto& [description, pass] : passes)
    EXPECT_TRUE(CudnnGraph(gpu, pass.pass, pass.shape).engines().empty()) << description;
}

}  // namespace
}  // namespace tutti::cuda
