#pragma once
// Graphs of a convolution of ResNet-18 fused with what comes before and after it, for cuDNN's heuristics.

#include "backend/cuda/cudnn_graph.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::cuda {

// clang-format off
template <> inline constexpr auto kCudnnType<bool> = CUDNN_TYPE_BOOLEAN;
template <> inline constexpr auto kCudnnType<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <> inline constexpr auto kCudnnType<cudnnGenStatsMode_t> = CUDNN_TYPE_GENSTATS_MODE;
// clang-format on

// Of 256 square images, with 3x3 filters.
inline ConvolutionShape convolution(std::int64_t channels, std::int64_t outputs, std::int64_t extent,
                                    std::int64_t stride = 1) {
  return {.samples = 256,
          .channels = channels,
          .height = extent,
          .width = extent,
          .outputs = outputs,
          .kernel_height = 3,
          .kernel_width = 3,
          .stride = stride,
          .padding = 1};
}

// A graph of a convolution's pass and what is computed before and after it. Virtual tensors are not in memory.
class Fusion {
 public:
  Fusion(cudnnDataType_t type, const ConvolutionShape& shape) : type_(type), shape_(shape) {}

  CudnnDescriptor input() { return input_image(type_, false); }
  CudnnDescriptor output() { return output_image(type_, false); }
  CudnnDescriptor virtual_input() { return input_image(CUDNN_DATA_FLOAT, true); }
  CudnnDescriptor virtual_output() { return output_image(CUDNN_DATA_FLOAT, true); }

  void forward(const CudnnDescriptor& x, const CudnnDescriptor& y) { convolve(ConvolutionPass::forward, x, y); }
  void input_gradient(const CudnnDescriptor& dx) { convolve(ConvolutionPass::input_gradient, dx, output()); }
  void weight_gradient(const CudnnDescriptor& x) { convolve(ConvolutionPass::weight_gradient, x, output()); }

  // y = x + factor * b or x * b.
  void combine(cudnnPointwiseMode_t mode, const CudnnDescriptor& x, const CudnnDescriptor& b, const CudnnDescriptor& y,
               float factor = 1) {
    CudnnDescriptor& work = add_pointwise(mode);
    work.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    work.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    work.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    work.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, factor);
    work.finalize();
  }

  void relu(const CudnnDescriptor& x, const CudnnDescriptor& y) {
    CudnnDescriptor& work = add_pointwise(CUDNN_POINTWISE_RELU_FWD);
    work.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    work.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    work.finalize();
  }

  void relu_gradient(const CudnnDescriptor& dy, const CudnnDescriptor& x, const CudnnDescriptor& dx) {
    CudnnDescriptor& work = add_pointwise(CUDNN_POINTWISE_RELU_BWD);
    work.set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    work.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    work.set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    work.finalize();
  }

  // The output of the batch norm and ReLU before the convolution.
  CudnnDescriptor norm_and_relu() {
    const CudnnDescriptor scaled = virtual_input();
    const CudnnDescriptor shifted = virtual_input();
    CudnnDescriptor rectified = input_image(type_, true);
    combine(CUDNN_POINTWISE_MUL, input(), channel_values(shape_.channels, type_), scaled);
    combine(CUDNN_POINTWISE_ADD, scaled, channel_values(shape_.channels, type_), shifted);
    relu(shifted, rectified);
    return rectified;
  }

  // The sums for the batch norm after the convolution: of its output and of its squares.
  void sums(const CudnnDescriptor& y) {
    CudnnDescriptor& work = add(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    work.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM);
    work.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
    work.set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
    work.set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, channel_values(shape_.outputs));
    work.set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, channel_values(shape_.outputs));
    work.finalize();
  }

  // From the gradient of the convolution's input: that of the ReLU's input, which is computed again, and the sums for
  // the gradient of the batch norm.
  void relu_gradient_and_sums(const CudnnDescriptor& dx) {
    const CudnnDescriptor x = input();
    const CudnnDescriptor mean = channel_values(shape_.channels);
    const CudnnDescriptor inverse = channel_values(shape_.channels);
    const CudnnDescriptor scale = channel_values(shape_.channels);
    const CudnnDescriptor apart = virtual_input();
    const CudnnDescriptor normal = virtual_input();
    const CudnnDescriptor scaled = virtual_input();
    const CudnnDescriptor shifted = virtual_input();
    const CudnnDescriptor gradient = input();
    combine(CUDNN_POINTWISE_ADD, x, mean, apart, -1);
    combine(CUDNN_POINTWISE_MUL, apart, inverse, normal);
    combine(CUDNN_POINTWISE_MUL, normal, scale, scaled);
    combine(CUDNN_POINTWISE_ADD, scaled, channel_values(shape_.channels), shifted);
    relu_gradient(dx, shifted, gradient);
    CudnnDescriptor& work = add(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
    work.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_DATA_FLOAT);
    work.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, x);
    work.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, mean);
    work.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, inverse);
    work.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, scale);
    work.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, gradient);
    for (const auto result :
         {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
          CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
          CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS})
      work.set(result, channel_values(shape_.channels));
    work.finalize();
  }

  CudnnDescriptor output_values() { return channel_values(shape_.outputs); }

  // A tensor in memory, by its number.
  struct Memory {
    std::int64_t number;
    std::size_t bytes;
  };
  const std::vector<Memory>& memory() const { return memory_; }

  // The configurations in cuDNN's lists.
  std::vector<CudnnDescriptor> configurations(const CudnnTarget& target) const {
    CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
    target.apply_to(graph);
    std::vector<CudnnDescriptor> all;
    if (!graph.try_finalize()) return all;
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
      heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
      heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
      target.apply_to(heuristic);
      if (!heuristic.try_finalize()) continue;
      for (CudnnDescriptor& configuration :
           heuristic.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 128))
        all.push_back(std::move(configuration));
    }
    return all;
  }

  // The number of deterministic configurations whose engines are not compiled at run time. All of them can be built.
  // Whether cuDNN proposes others depends on whether there is a driver.
  int precompiled(const CudnnTarget& target) const {
    int count = 0;
    for (const CudnnDescriptor& configuration : configurations(target)) {
      if (is_compiled_or_random(configuration)) continue;
      CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      target.apply_to(plan);
      plan.finalize();
      ++count;
    }
    return count;
  }

 private:
  static bool is_compiled_or_random(const CudnnDescriptor& configuration) {
    const CudnnDescriptor engine = engine_of(configuration);
    const auto behavior = engine.values<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, 32);
    const auto numerical = engine.values<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 32);
    return std::ranges::count(behavior, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) > 0 ||
           std::ranges::count(numerical, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) > 0;
  }

  CudnnDescriptor& add(cudnnBackendDescriptorType_t type) { return operations_.emplace_back(type); }

  CudnnDescriptor& add_pointwise(cudnnPointwiseMode_t mode) {
    CudnnDescriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, mode);
    kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    kind.finalize();
    CudnnDescriptor& work = add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    work.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    return work;
  }

  void convolve(ConvolutionPass pass, const CudnnDescriptor& input, const CudnnDescriptor& output) {
    operations_.push_back(convolution_operation(pass, shape_, {input, filters(), output}));
  }

  CudnnDescriptor input_image(cudnnDataType_t type, bool is_virtual) {
    return tensor({shape_.samples, shape_.channels, shape_.height, shape_.width}, type, is_virtual);
  }
  CudnnDescriptor output_image(cudnnDataType_t type, bool is_virtual) {
    return tensor({shape_.samples, shape_.outputs, shape_.output_height(), shape_.output_width()}, type, is_virtual);
  }
  CudnnDescriptor filters() {
    return tensor({shape_.outputs, shape_.channels, shape_.kernel_height, shape_.kernel_width}, type_, false);
  }
  CudnnDescriptor channel_values(std::int64_t channels, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return tensor({1, channels, 1, 1}, type, false);
  }

  CudnnDescriptor tensor(const std::vector<std::int64_t>& extents, cudnnDataType_t type, bool is_virtual) {
    const std::int64_t row = extents[1] * extents[3];
    const std::size_t value = type == CUDNN_DATA_FLOAT ? 4 : 2;
    if (!is_virtual) memory_.push_back({tensors_ + 1, static_cast<std::size_t>(extents[0] * extents[2] * row) * value});
    CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, ++tensors_);
    descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
    descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, std::vector<std::int64_t>{extents[2] * row, 1, row, extents[1]});
    descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
    descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual);
    descriptor.finalize();
    return descriptor;
  }

  cudnnDataType_t type_;
  ConvolutionShape shape_;
  std::int64_t tensors_ = 0;
  std::vector<Memory> memory_;
  std::vector<CudnnDescriptor> operations_;
};

// What is fused, by name.
struct FusionCase {
  std::string name;
  void (*build)(Fusion& graph);
};

inline void forward_with_sums(Fusion& graph, const CudnnDescriptor& x) {
  const CudnnDescriptor y = graph.output();
  graph.forward(x, y);
  graph.sums(y);
}

inline void forward_with_bias_and_relu(Fusion& graph) {
  const CudnnDescriptor product = graph.virtual_output();
  const CudnnDescriptor sum = graph.virtual_output();
  graph.forward(graph.input(), product);
  graph.combine(CUDNN_POINTWISE_ADD, product, graph.output_values(), sum);
  graph.relu(sum, graph.output());
}

inline const std::vector<FusionCase>& fusions() {
  static const std::vector<FusionCase> cases{
      {"forward, sums of the output", [](Fusion& graph) { forward_with_sums(graph, graph.input()); }},
      {"norm and ReLU of the input, forward",
       [](Fusion& graph) { graph.forward(graph.norm_and_relu(), graph.output()); }},
      {"norm and ReLU of the input, forward, sums of the output",
       [](Fusion& graph) { forward_with_sums(graph, graph.norm_and_relu()); }},
      {"norm and ReLU of the input, weight gradient",
       [](Fusion& graph) { graph.weight_gradient(graph.norm_and_relu()); }},
      {"input gradient, ReLU's gradient, sums for the norm's gradient",
       [](Fusion& graph) {
         const CudnnDescriptor dx = graph.virtual_input();
         graph.input_gradient(dx);
         graph.relu_gradient_and_sums(dx);
       }},
      {"input gradient, ReLU's gradient",
       [](Fusion& graph) {
         const CudnnDescriptor dx = graph.virtual_input();
         graph.input_gradient(dx);
         graph.relu_gradient(dx, graph.input(), graph.input());
       }},
      {"input gradient, sum with the residual's",
       [](Fusion& graph) {
         const CudnnDescriptor dx = graph.virtual_input();
         graph.input_gradient(dx);
         graph.combine(CUDNN_POINTWISE_ADD, dx, graph.input(), graph.input());
       }},
      {"forward, bias, ReLU", forward_with_bias_and_relu}};
  return cases;
}

}  // namespace tutti::cuda
