// Asks cuDNN for the candidates of every pass of a convolution or linear layer that the built-in networks and the tests
// have, on GPUs that are not present, and compares them with cudnn_passes.txt.

#include "tutti/nn/models.hpp"
#include "tutti/nn/network.hpp"

#include "backend/absent_gpus.hpp"
#include "backend/cuda/weights.hpp"
#include "backend/layer_cases.hpp"
#include "backend/recorded_answers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <iterator>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace tutti::cuda {
namespace {

struct Pass {
  ConvolutionPass pass;
  ConvolutionShape shape;
};

// The passes of each subject, by description.
using Subjects = std::map<std::string, std::map<std::string, Pass>>;

struct WeightedLayerCase {
  LayerSpec spec;
  Shape sample;
  std::int64_t batch;
  bool reads_image = false;
};

// Adds the passes of a convolution or linear layer, which are of one subject: if none is given, that of the same pass
// of any batch.
void add_passes(Subjects& subjects, const WeightedLayerCase& layer, Precision precision, const std::string& subject) {
  if (!std::holds_alternative<Conv2dSpec>(layer.spec) && !std::holds_alternative<LinearSpec>(layer.spec)) return;
  const auto* const convolution = std::get_if<Conv2dSpec>(&layer.spec);
  if (convolution != nullptr && convolution->groups * convolution->dilation > 1) return;  // no answers are recorded
  const ElementType type = precision == Precision::bf16 ? ElementType::bf16 : ElementType::f32;
  const ActivationSpec input = activation_of(layer.sample.batch_of(layer.batch), type);
  const ConvolutionShape shape = weighted_layer_of(precision, layer.spec, input).convolution;
  for (const auto pass :
       {ConvolutionPass::forward, ConvolutionPass::weight_gradient, ConvolutionPass::input_gradient}) {
    if (pass == ConvolutionPass::input_gradient && layer.reads_image) continue;
    const std::string description = describe(pass, shape);
    const std::string start = fmt::format("{} {} ", name_of(pass), name_of(precision));
    const std::string batch = std::to_string(layer.batch);
    std::string of_any_batch = description;
    of_any_batch.replace(start.size(), batch.size(), "N");
    subjects[subject.empty() ? of_any_batch : start + subject].emplace(description, Pass{pass, shape});
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

void add_passes(Subjects& subjects, const Workload& workload, Precision precision) {
  const Network network(built_in_model(workload.model), workload.sample, workload.classes);
  for (const NetworkLayer& layer : network.layers()) {
    for (const std::int64_t batch : workload.batches)
      add_passes(subjects, {layer.spec, layer.input, batch, layer.from == kImage}, precision, "");
  }
}

Subjects all_subjects() {
  for (const std::string& name : built_in_model_names())
    EXPECT_GT(std::ranges::count(workloads(), name, &Workload::model), 0) << name << " is not in workloads()";
  Subjects subjects;
  for (const Precision precision : {Precision::bf16, Precision::fp32, Precision::tf32}) {
    for (const Workload& workload : workloads()) add_passes(subjects, workload, precision);
    for (const auto& cases : {testing_support::all_cases(), testing_support::small_cases()}) {
      for (const testing_support::NetworkCase& network : cases) {
        Shape sample = network.sample;
        for (const LayerSpec& spec : network.layers) {
          add_passes(subjects, {spec, sample, network.batch}, precision, "of the tests' layers");
          sample = output_shape(spec, sample);
        }
      }
    }
  }
  return subjects;
}

// What a GPU offers for all passes of a subject.
struct Offer {
  std::size_t fewest_candidates = std::numeric_limits<std::size_t>::max();
  std::size_t fewest_engines = std::numeric_limits<std::size_t>::max();
  std::size_t most_scratch_bytes = 0;
  bool compiles_at_run_time = false;
};

template <class Note>
std::string notes_of(const CudnnEngine& engine, cudnnBackendAttributeName_t name,
                     std::initializer_list<std::pair<Note, std::string_view>> texts) {
  const auto descriptor = engine_of(engine.configuration);
  const auto notes = descriptor.values<Note>(name, 32);
  std::string text;
  for (const auto& [note, words] : texts) {
    if (std::ranges::count(notes, note) > 0) text += fmt::format(", {}", words);
  }
  return text;
}

// The notes that the program does not exclude, and "captured": from a stream, as any engine that cannot make nodes of a
// CUDA graph itself.
std::string notes_of(const CudnnEngine& engine) {
  const std::string behavior =
      notes_of<cudnnBackendBehaviorNote_t>(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                           {{CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, "compiled at run time"},
                                            {CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API, "makes graph nodes"}});
  const std::string numerical =
      notes_of<cudnnBackendNumericalNote_t>(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                            {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, "tensor cores"},
                                             {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, "down-converts inputs"},
                                             {CUDNN_NUMERICAL_NOTE_FFT, "FFT"},
                                             {CUDNN_NUMERICAL_NOTE_WINOGRAD, "Winograd"}});
  const bool makes_nodes = behavior.find("nodes") != std::string::npos;
  return (makes_nodes ? "not captured" : "captured") + behavior + numerical;
}

struct OffersOfGpu {
  std::vector<Offer> offers;  // in the order of the subjects
  Answers engines;            // their notes, by "engine 45 of forward bf16"
};

OffersOfGpu ask(const GpuProperties& gpu, const Subjects& subjects) {
  const AbsentGpu target(gpu);
  OffersOfGpu answer;
  for (const auto& [subject, passes] : subjects) {
    Offer& offer = answer.offers.emplace_back();
    for (const auto& [description, pass] : passes) {
      const auto engines = CudnnGraph(target, pass.pass, pass.shape).engines();
      std::set<std::int64_t> different;
      for (const CudnnEngine& engine : engines) {
        different.insert(engine.choice().engine);
        offer.most_scratch_bytes = std::max(offer.most_scratch_bytes, engine.scratch_bytes);
        offer.compiles_at_run_time |= engine.is_compiled_at_run_time();
        answer.engines[fmt::format("engine {} of {} {}", engine.choice().engine, name_of(pass.pass),
                                   name_of(pass.shape.precision))] = notes_of(engine);
      }
      offer.fewest_candidates = std::min(offer.fewest_candidates, engines.size());
      offer.fewest_engines = std::min(offer.fewest_engines, different.size());
    }
  }
  return answer;
}

// Asks for each GPU in a thread of its own. Checks what must hold for any version of cuDNN, and compares the answers.
void expect_offers(const Subjects& subjects) {
  std::vector<std::future<OffersOfGpu>> asked;
  for (const GpuProperties& gpu : kGpus)
    asked.push_back(std::async(std::launch::async, [&] { return ask(gpu, subjects); }));
  Answers answers;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const std::string gpu(kGpus.at(i).short_name);
    const OffersOfGpu answer = asked[i].get();
    auto offer = answer.offers.begin();
    for (const auto& [subject, unused] : subjects) {
      EXPECT_GE(offer->fewest_candidates, 1U) << subject << " on " << gpu;
      EXPECT_FALSE(offer->compiles_at_run_time) << subject << " on " << gpu;
      std::string& cells = answers[subject];
      cells += fmt::format("{}{} {} {:.0f}", cells.empty() ? "" : " | ", offer->fewest_candidates,
                           offer->fewest_engines, std::ceil(static_cast<double>(offer->most_scratch_bytes) * 0x1p-20));
      ++offer;
    }
    for (const auto& [engine, notes] : answer.engines) {
      EXPECT_EQ(answers.emplace(engine, notes).first->second, notes) << engine << " on " << gpu;
    }
  }
  expect_recorded("cudnn_passes.txt", answers);
}

TEST(CudnnPasses, AreOfferedForResnet18InBf16) {
  Subjects of_network;
  add_passes(of_network, {"resnet18", {1, 28, 28}, 10, {256}}, Precision::bf16);
  Subjects subjects = all_subjects();
  std::erase_if(subjects, [&](const auto& subject) { return !of_network.contains(subject.first); });
  EXPECT_EQ(subjects.size(), of_network.size());
  expect_offers(subjects);
}

TEST(CudnnPasses, AreOfferedForAllNetworks) { expect_offers(all_subjects()); }

TEST(CudnnPasses, AreNotOfferedInBf16OnGpusThatAreTooOld) {
  const AbsentGpu gpu(kT4);
  Subjects subjects;
  add_passes(subjects, {"lenet", {1, 28, 28}, 10, {128}}, Precision::bf16);
  for (const auto& [subject, passes] : subjects) {
    for (const auto& [description, pass] : passes)
      EXPECT_TRUE(CudnnGraph(gpu, pass.pass, pass.shape).engines().empty()) << description;
  }
}

}  // namespace
}  // namespace tutti::cuda
