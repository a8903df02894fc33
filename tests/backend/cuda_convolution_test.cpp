// Tests cuDNN's proposals for an absent GPU, whose properties are given as text.

#include "tutti/nn/models.hpp"
#include "tutti/nn/network.hpp"

#include "backend/cuda/cudnn_graph.hpp"
#include "backend/cuda/weights.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <vector>

namespace tutti::cuda {
namespace {

class AbsentGpu final : public CudnnTarget {
 public:
  explicit AbsentGpu(const std::string& path) {
    std::ifstream file(path);
    const std::vector<char> text(std::istreambuf_iterator<char>(file), {});
    properties_.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, text);
    properties_.finalize();
  }

  void apply_to(CudnnDescriptor& descriptor) const override {
    if (descriptor.type() == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
      descriptor.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties_);
    } else if (descriptor.type() == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
      descriptor.set(CUDNN_ATTR_ENGINE_DEVICEPROP, properties_);
    } else if (descriptor.type() == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
      descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties_);
    }
  }

 private:
  CudnnDescriptor properties_{CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR};
};

const CudnnTarget& h200() {
  static const AbsentGpu gpu(TUTTI_H200_PROPERTIES);
  return gpu;
}

struct Pass {
  ConvolutionPass pass;
  ConvolutionShape shape;
};

// The convolutions of a network's training, by description.
std::map<std::string, Pass> passes_of(const Network& network, std::int64_t batch, Precision precision) {
  const ElementType type = precision == Precision::bf16 ? ElementType::bf16 : ElementType::f32;
  std::map<std::string, Pass> passes;
  for (const NetworkLayer& layer : network.layers()) {
    const auto add = [&](const auto& spec) {
      const auto shape =
          weighted_layer_of(precision, spec, activation_of(layer.input.batch_of(batch), type)).convolution;
      for (const auto pass :
           {ConvolutionPass::forward, ConvolutionPass::weight_gradient, ConvolutionPass::input_gradient}) {
        if (pass == ConvolutionPass::input_gradient && layer.from == kImage) continue;
        passes.emplace(describe(pass, shape), Pass{pass, shape});
      }
    };
    if (const auto* convolution = std::get_if<Conv2dSpec>(&layer.spec)) add(*convolution);
    if (const auto* linear = std::get_if<LinearSpec>(&layer.spec)) add(*linear);
  }
  return passes;
}

struct Workload {
  std::string model;
  Shape sample;
  int classes;
  std::int64_t batch;
  Precision precision;
};

std::ostream& operator<<(std::ostream& out, const Workload& workload) { return out << workload.model; }

std::vector<Workload> workloads() {
  std::vector<Workload> all;
  for (const Precision precision : {Precision::bf16, Precision::fp32, Precision::tf32}) {
    all.insert(all.end(), {{"lenet", {1, 28, 28}, 10, 64, precision},
                           {"resnet18", {1, 28, 28}, 10, 512, precision},
                           {"resnet18", {3, 32, 32}, 10, 512, precision},
                           {"resnet50", {3, 224, 224}, 1000, 256, precision}});
  }
  return all;
}

std::string name_of_workload(const ::testing::TestParamInfo<Workload>& info) {
  const Workload& workload = info.param;
  return fmt::format("{}On{}In{}", workload.model, workload.sample[2], name_of(workload.precision));
}

class CudnnProposals : public ::testing::TestWithParam<Workload> {
 protected:
  std::map<std::string, Pass> passes() const {
    const Workload& workload = GetParam();
    const Network network(built_in_model(workload.model), workload.sample, workload.classes);
    return passes_of(network, workload.batch, workload.precision);
  }
};

TEST_P(CudnnProposals, HaveCompiledCodeForEveryPassOnAnH200) {
  for (const auto& [description, pass] : passes()) {
    const auto engines = CudnnGraph(h200(), pass.pass, pass.shape).engines();
    ASSERT_FALSE(engines.empty()) << description;
    EXPECT_FALSE(engines[0].is_compiled_at_run_time()) << description;
    std::set<std::int64_t> different;
    for (const CudnnEngine& engine : engines) different.insert(engine.choice().engine);
    fmt::print("{:<75} {:>2} candidates of {:>2} engines, first {:>3}, {:>6.1f} MiB\n", description, engines.size(),
               different.size(), engines[0].choice().engine, static_cast<double>(engines[0].scratch_bytes) / 0x1p20);
  }
}

INSTANTIATE_TEST_SUITE_P(OfNetworks, CudnnProposals, ::testing::ValuesIn(workloads()), name_of_workload);

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
