// Times the passes that cuDNN fuses with convolutions in bf16, by engines that it compiles at run time, against the
// separate kernels that they would replace: the fastest of cuDNN's plain plans and our kernels of batch norm. For the
// 3x3 convolutions of ResNet-18 on 1x28x28; the sums weigh each shape by how often a step has it.
//
//     fusion_speed [BATCH...]     default: 256 1024
//     fusion_speed --check        without a GPU: says how many plans cuDNN builds for an H200
//
// All runs come one after another, so the tensors are as warm as they can be.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/cuda_library.hpp"

#include "backend/absent_gpus.hpp"
#include "backend/cuda/format.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/cudnn_fusion.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::cuda {
namespace {

constexpr int kRuns = 20;
constexpr std::size_t kMaxPlainPlans = 12;
constexpr std::size_t kMaxFusedPlans = 2;
constexpr std::size_t kMaxScratch = std::size_t{512} << 20U;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// bf16 in -2 .. -1 and 1 .. 2: processors run faster on zeros than on real activations.
void fill_with_random_values(Backend& backend, Stream& stream, const Buffer& buffer) {
  static std::vector<std::uint16_t> values = [] {
    std::vector<std::uint16_t> drawn(std::size_t{1} << 20U);
    std::minstd_rand random;
    for (std::uint16_t& value : drawn) value = static_cast<std::uint16_t>(0x3F80U | (random() >> 8U & 0x807FU));
    return drawn;
  }();
  const auto all = static_cast<std::int64_t>(buffer.bytes() / sizeof(std::uint16_t));
  for (std::int64_t done = 0; done < all; done += std::ssize(values)) {
    const tutti::Shape count{std::min(std::ssize(values), all - done)};
    backend.copy(stream, buffer.view(count, ElementType::bf16, static_cast<std::size_t>(done) * sizeof(std::uint16_t)),
                 {values.data(), count, ElementType::bf16, MemorySpace::host});
  }
}

struct Shape {
  ConvolutionShape convolution;
  int times;  // in a step
};

std::vector<Shape> shapes(std::int64_t batch) {
  std::vector<Shape> all{{convolution(64, 64, 28), 4},   {convolution(64, 128, 28, 2), 1},
                         {convolution(128, 128, 14), 3}, {convolution(128, 256, 14, 2), 1},
                         {convolution(256, 256, 7), 3},  {convolution(256, 512, 7, 2), 1},
                         {convolution(512, 512, 4), 3}};
  for (Shape& shape : all) {
    shape.convolution.samples = batch;
    shape.convolution.precision = Precision::bf16;
  }
  return all;
}

// A handle of its own for each thread that builds plans.
class PresentGpu final : public CudnnTarget {
 public:
  PresentGpu() { check(cudnnCreate(&handle_)); }
  void apply_to(CudnnDescriptor& descriptor) const override {
    if (descriptor.type() == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
      descriptor.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_);
    } else if (descriptor.type() == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
      descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
    }
  }
  cudnnHandle_t handle() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;  // lives as long as the process
};

struct Plan {
  CudnnDescriptor plan;
  std::vector<Fusion::Memory> memory;
};

std::vector<Plan> fused_plans(const CudnnTarget& gpu, const ConvolutionShape& shape, const FusionCase& fusion) {
  Fusion graph(CUDNN_DATA_BFLOAT16, shape);
  fusion.build(graph);
  std::vector<Plan> plans;
  for (const CudnnDescriptor& configuration : graph.configurations(gpu)) {
    if (plans.size() == kMaxFusedPlans) break;
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    gpu.apply_to(plan);
    if (plan.try_finalize()) plans.push_back({std::move(plan), graph.memory()});
  }
  return plans;
}

// Of fusions(): those with a batch norm.
constexpr std::size_t kFusions = 5;
using FusedPlans = std::vector<std::vector<Plan>>;  // by fusion

class Bench {
 public:
  Bench()
      : backend_(tutti_cuda_library().make_backend({.device = 0, .precision = Precision::bf16})),
        stream_(make_cuda_stream(0)),
        begin_(make_timed_cuda_event(0)),
        end_(make_timed_cuda_event(0)) {}

  // Of the fastest plan; none if there is none.
  double microseconds(const std::vector<Plan>& plans) {
    double best = kNone;
    for (const Plan& plan : plans) {
      std::vector<Buffer> buffers;
      std::vector<std::int64_t> numbers;
      std::vector<void*> addresses;
      for (const auto& [number, bytes] : plan.memory) {
        buffers.push_back(allocate_cuda(0, bytes));
        fill_with_random_values(*backend_, *stream_, buffers.back());
        numbers.push_back(number);
        addresses.push_back(buffers.back().data());
      }
      const auto scratch_bytes =
          static_cast<std::size_t>(plan.plan.value<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
      if (scratch_bytes > kMaxScratch) continue;
      const Buffer scratch = allocate_cuda(0, scratch_bytes);
      CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, numbers);
      pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, addresses);
      pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, scratch.data());
      pack.finalize();
      check(cudnnSetStream(gpu_.handle(), native(*stream_)));
      const double spent =
          microseconds([&] { check(cudnnBackendExecute(gpu_.handle(), plan.plan.get(), pack.get())); });
      if (!(best <= spent)) best = spent;
    }
    return best;
  }

  double plain(ConvolutionPass pass, const ConvolutionShape& shape) {
    std::vector<Plan> plans;
    const std::size_t value = 2;
    const auto bytes = [&](std::int64_t count) { return static_cast<std::size_t>(count) * value; };
    const std::vector<Fusion::Memory> memory{
        {kInputTensor, bytes(shape.samples * shape.height * shape.width * shape.channels)},
        {kFilterTensor, bytes(shape.outputs * shape.channels * 9)},
        {kOutputTensor, bytes(shape.samples * shape.output_height() * shape.output_width() * shape.outputs)}};
    for (CudnnEngine& engine : CudnnGraph(gpu_, pass, shape).engines(kMaxPlainPlans))
      plans.push_back({std::move(engine.plan), memory});
    return microseconds(plans);
  }

  // Our kernels of a batch norm with ReLU: the sums, their application, and the sums of the gradient.
  struct Norm {
    double sums;
    double application;
    double gradient_sums;
  };
  Norm norm(std::int64_t batch, std::int64_t channels, std::int64_t extent);

 private:
  double microseconds(const std::function<void()>& run) {
    for (int i = 0; i < 3; ++i) run();
    stream_->record(*begin_);
    for (int i = 0; i < kRuns; ++i) run();
    stream_->record(*end_);
    stream_->await(*end_);
    return end_->seconds_since(*begin_) * 1e6 / kRuns;
  }

  std::unique_ptr<Backend> backend_;
  PresentGpu gpu_;
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<Event> begin_;
  std::unique_ptr<Event> end_;
};

Bench::Norm Bench::norm(std::int64_t batch, std::int64_t channels, std::int64_t extent) {
  const ActivationSpec activation = activation_of({batch, channels, extent, extent}, ElementType::bf16);
  const BatchNormSpec spec{.relu = true};
  const Buffer input = backend_->allocate(activation.bytes);
  const Buffer output = backend_->allocate(activation.bytes);
  const Buffer output_gradient = backend_->allocate(activation.bytes);
  fill_with_random_values(*backend_, *stream_, input);
  fill_with_random_values(*backend_, *stream_, output_gradient);
  const Buffer memory = backend_->allocate(8 * static_cast<std::size_t>(channels) * sizeof(float));
  std::vector<Tensor> values;  // scale, shift, mean, variance, then the gradients of each
  for (std::size_t i = 0; i < 8; ++i)
    values.push_back(memory.view({channels}, ElementType::f32, i * static_cast<std::size_t>(channels) * sizeof(float)));
  const std::vector<Tensor> gradients(values.begin() + 4, values.end());
  values.resize(4);
  const auto weights = backend_->make_weights(spec, values);
  weights->refresh(*stream_);
  const auto forward = [&](LayerMode mode) {
    const auto layer = backend_->make_layer(spec, {.input = activation, .weights = weights.get(), .mode = mode});
    return microseconds([&] { layer->forward(*stream_, {.input = input.data(), .output = output.data()}); });
  };
  const double application = forward(LayerMode::evaluation);
  const double both = forward(LayerMode::training);
  const auto layer = backend_->make_layer(spec, {.input = activation, .weights = weights.get()});
  layer->forward(*stream_, {.input = input.data(), .output = output.data()});
  void* const address = output_gradient.data();
  const double gradient_sums = microseconds([&] {
    layer->backward(
        *stream_,
        {.input = input.data(), .output = output.data(), .output_gradients = {&address, 1}, .gradients = gradients});
  });
  return {both - application, application, gradient_sums};
}

std::string cell(double value) { return std::isfinite(value) ? fmt::format("{:.1f}", value) : "none"; }

// The fused kernels and those that they would replace, in the order of fusions().
using Times = std::vector<std::pair<double, double>>;

Times times_of(Bench& bench, const ConvolutionShape& shape, const FusedPlans& plans) {
  const Bench::Norm before = bench.norm(shape.samples, shape.channels, shape.height);
  const Bench::Norm after = bench.norm(shape.samples, shape.outputs, shape.output_height());
  const double forward = bench.plain(ConvolutionPass::forward, shape);
  const std::vector<double> separate{forward + after.sums, forward + before.application,
                                     forward + before.application + after.sums,
                                     bench.plain(ConvolutionPass::weight_gradient, shape) + before.application,
                                     bench.plain(ConvolutionPass::input_gradient, shape) + before.gradient_sums};
  Times times;
  for (std::size_t i = 0; i < kFusions; ++i) times.emplace_back(bench.microseconds(plans[i]), separate[i]);
  return times;
}

void print_row(std::int64_t batch, const std::string& shape, const Times& times) {
  std::string line = fmt::format("{:>5} {:<14}", batch, shape);
  for (const auto& [fused, separate] : times) line += fmt::format(" {:>8} {:>8.1f}", cell(fused), separate);
  std::puts(line.c_str());
  std::fflush(stdout);
}

FusedPlans plans_of(const CudnnTarget& gpu, const ConvolutionShape& shape) {
  FusedPlans plans;
  for (std::size_t i = 0; i < kFusions; ++i) plans.push_back(fused_plans(gpu, shape, fusions()[i]));
  return plans;
}

void measure(std::int64_t batch) {
  std::vector<std::future<FusedPlans>> plans;  // each takes seconds to compile
  for (const Shape& shape : shapes(batch)) {
    plans.push_back(std::async(std::launch::async, [convolution = shape.convolution] {
      use_cuda_device(0);
      const PresentGpu gpu;
      return plans_of(gpu, convolution);
    }));
  }
  for (auto& one : plans) one.wait();  // what is timed has the machine for itself
  Bench bench;
  Times all(kFusions, {0, 0});
  std::size_t at = 0;
  for (const auto& [shape, times_in_step] : shapes(batch)) {
    const Times times = times_of(bench, shape, plans[at++].get());
    for (std::size_t i = 0; i < kFusions; ++i) {
      all[i].first += times_in_step * times[i].first;
      all[i].second += times_in_step * times[i].second;
    }
    print_row(batch, fmt::format("{}->{} {}/{}", shape.channels, shape.outputs, shape.height, shape.stride), times);
  }
  print_row(batch, "all 16", all);
}

int check_plans() {
  const AbsentGpu gpu(kH200);
  const ConvolutionShape shape = shapes(256)[2].convolution;
  std::size_t built = CudnnGraph(gpu, ConvolutionPass::forward, shape).engines(1).size();
  std::printf("plain forward: %zu plan\n", built);
  for (std::size_t i = 0; i < kFusions; ++i) {
    Fusion graph(CUDNN_DATA_BFLOAT16, shape);
    fusions()[i].build(graph);
    std::printf("%s: %zu configurations, %zu of the first plans built\n", fusions()[i].name.c_str(),
                graph.configurations(gpu).size(), fused_plans(gpu, shape, fusions()[i]).size());
  }
  return built == 1 ? 0 : 1;
}

}  // namespace
}  // namespace tutti::cuda

int main(int argc, char** argv) {
  using namespace tutti::cuda;
  try {
    if (argc == 2 && std::string_view(argv[1]) == "--check") return check_plans();
    std::puts("us, fused and separate: (1) forward + sums, (2) norm + forward, (3) norm + forward + sums,");
    std::puts("(4) norm + weight gradient, (5) input gradient + sums of the norm's gradient");
    std::printf("%5s %-14s", "batch", "shape");
    for (const char* name : {"(1)", "(2)", "(3)", "(4)", "(5)"}) std::printf(" %8s %8s", name, "separate");
    std::puts("");
    for (int i = 1; i < argc; ++i) measure(std::atoll(argv[i]));
    if (argc == 1) {
      measure(256);
      measure(1024);
    }
    return 0;
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "fusion_speed: %s\n", error.describe().c_str());
    return 1;
  }
}
