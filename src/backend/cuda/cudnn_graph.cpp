#include "backend/cuda/cudnn_graph.hpp"

#include "backend/cuda/runtime.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace tutti::cuda {
namespace {

constexpr std::size_t kMaxSettings = 3;         // of an engine
constexpr std::size_t kMaxCompiledEngines = 2;  // compiled at run time, which takes a second each
constexpr std::size_t kMaxScratchBytes = std::size_t{512} << 20;
constexpr std::int64_t kMaxProposals = 128;
constexpr std::int64_t kMaxNotes = 32;
constexpr std::int64_t kMaxKnobs = 64;

// Extents are N, C, H, W; the strides are those of NHWC.
CudnnDescriptor tensor(std::int64_t number, const std::vector<std::int64_t>& extents, Precision precision) {
  const std::int64_t pixel = extents[1];
  const std::int64_t row = extents[3] * pixel;
  CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, number);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, precision == Precision::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT);
  descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
  descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, std::vector<std::int64_t>{extents[2] * row, 1, row, pixel});
  descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
  descriptor.finalize();
  return descriptor;
}

CudnnDescriptor window(const ConvolutionShape& shape) {
  const std::vector<std::int64_t> padding(2, shape.padding);
  CudnnDescriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  descriptor.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::vector<std::int64_t>(2, shape.stride));
  descriptor.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::vector<std::int64_t>(2, shape.dilation));
  descriptor.finalize();
  return descriptor;
}

// cuDNN's names for the operation of a pass and its attributes.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t input;
  cudnnBackendAttributeName_t filters;
  cudnnBackendAttributeName_t output;
  cudnnBackendAttributeName_t window;
  cudnnBackendAttributeName_t result_factor;
  cudnnBackendAttributeName_t former_factor;
};

const OperationNames& names_of(ConvolutionPass pass) {
  static constexpr OperationNames kForward{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  static constexpr OperationNames kInputGradient{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  static constexpr OperationNames kWeightGradient{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  if (pass == ConvolutionPass::forward) return kForward;
  return pass == ConvolutionPass::input_gradient ? kInputGradient : kWeightGradient;
}

CudnnDescriptor operation(ConvolutionPass pass, const ConvolutionShape& shape) {
  const CudnnDescriptor input =
      tensor(kInputTensor, {shape.samples, shape.channels, shape.height, shape.width}, shape.precision);
  const CudnnDescriptor filters = tensor(
      kFilterTensor, {shape.outputs, shape.group_channels(), shape.kernel_height, shape.kernel_width}, shape.precision);
  const CudnnDescriptor output = tensor(
      kOutputTensor, {shape.samples, shape.outputs, shape.output_height(), shape.output_width()}, shape.precision);
  const OperationNames& names = names_of(pass);
  CudnnDescriptor descriptor(names.type);
  descriptor.set(names.input, input);
  descriptor.set(names.filters, filters);
  descriptor.set(names.output, output);
  descriptor.set(names.window, window(shape));
  descriptor.set(names.result_factor, 1.0f);
  descriptor.set(names.former_factor, 0.0f);
  descriptor.finalize();
  return descriptor;
}

CudnnDescriptor graph_of(const CudnnTarget& target, const CudnnDescriptor& operation) {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  target.apply_to(graph);
  graph.finalize();
  return graph;
}

bool is_compiled_at_run_time(const CudnnDescriptor& engine) {
  const auto notes = engine.values<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, kMaxNotes);
  return std::ranges::find(notes, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != notes.end();
}

CudnnDescriptor engine_of(const CudnnDescriptor& configuration) {
  return std::move(configuration.descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR).at(0));
}

EngineChoice choice_in(const CudnnDescriptor& configuration) {
  EngineChoice choice{engine_of(configuration).value<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)};
  for (const CudnnDescriptor& knob :
       configuration.descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, kMaxKnobs)) {
    choice.knobs.push_back({knob.value<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE),
                            knob.value<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)});
  }
  return choice;
}

}  // namespace

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) : type_(type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  check(cudnnBackendCreateDescriptor(type, &descriptor));
  handle_ = decltype(handle_)(descriptor);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                          const void* values) {
  check(cudnnBackendSetAttribute(get(), name, type, count, values));
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  const cudnnBackendDescriptor_t descriptor = value.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const std::vector<CudnnDescriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> descriptors;
  for (const CudnnDescriptor& value : values) descriptors.push_back(value.get());
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(descriptors.size()), descriptors.data());
}

std::size_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most,
                                 void* values) const {
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(get(), name, type, most, &count, values));
  return static_cast<std::size_t>(std::min(count, most));
}

void CudnnDescriptor::finalize() { check(cudnnBackendFinalize(get())); }

bool CudnnDescriptor::try_finalize() { return cudnnBackendFinalize(get()) == CUDNN_STATUS_SUCCESS; }

// cuDNN writes into existing descriptors.
std::vector<CudnnDescriptor> CudnnDescriptor::descriptors(cudnnBackendAttributeName_t name,
                                                          cudnnBackendDescriptorType_t type, std::int64_t most) const {
  std::vector<CudnnDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < most; ++i) handles.push_back(found.emplace_back(type).get());
  const std::size_t count = get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, handles.data());
  found.erase(found.begin() + static_cast<std::ptrdiff_t>(count), found.end());
  return found;
}

EngineChoice CudnnEngine::choice() const { return choice_in(configuration); }

bool CudnnEngine::is_compiled_at_run_time() const { return cuda::is_compiled_at_run_time(engine_of(configuration)); }

CudnnGraph::CudnnGraph(const CudnnTarget& target, ConvolutionPass pass, const ConvolutionShape& shape)
    : target_(target), precision_(shape.precision), graph_(graph_of(target, operation(pass, shape))) {}

std::vector<CudnnDescriptor> CudnnGraph::proposals(cudnnBackendHeurMode_t mode) const {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  target_.apply_to(heuristic);
  if (!heuristic.try_finalize()) return {};
  return heuristic.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kMaxProposals);
}

// With f32 values, "tensor core" means rounding to tf32, with or without the note on down-converted inputs, which none
// of the engines has that cuDNN 9.19 proposes for an H200. Large Winograd tiles lose precision with any type.
bool CudnnGraph::allows(const CudnnDescriptor& engine) const {
  static constexpr std::array kNever{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
                                     CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
                                     CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
                                     CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13};
  static constexpr std::array kNeverInFp32{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS};
  const auto notes = engine.values<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, kMaxNotes);
  return std::ranges::none_of(notes, [&](cudnnBackendNumericalNote_t note) {
    return std::ranges::find(kNever, note) != kNever.end() ||
           (precision_ == Precision::fp32 && std::ranges::find(kNeverInFp32, note) != kNeverInFp32.end());
  });
}

std::optional<CudnnEngine> CudnnGraph::build(CudnnDescriptor configuration) const {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  target_.apply_to(plan);
  if (!plan.try_finalize()) return {};
  const auto scratch = static_cast<std::size_t>(plan.value<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  if (scratch > kMaxScratchBytes) return {};
  return CudnnEngine{std::move(configuration), std::move(plan), scratch};
}

std::vector<CudnnEngine> CudnnGraph::engines(std::size_t most) const {
  std::vector<CudnnEngine> engines;
  std::vector<CudnnDescriptor> compiled;
  std::vector<EngineChoice> seen;
  std::map<std::int64_t, std::size_t> settings;  // by engine
  const auto add = [&](CudnnDescriptor& configuration) {
    auto engine = build(std::move(configuration));
    if (engine) engines.push_back(std::move(*engine));
    return engine.has_value();
  };
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    for (CudnnDescriptor& configuration : proposals(mode)) {
      if (engines.size() == most) return engines;
      const CudnnDescriptor engine = engine_of(configuration);
      const EngineChoice choice = choice_in(configuration);
      if (!allows(engine) || settings[choice.engine] == kMaxSettings || std::ranges::count(seen, choice) > 0) continue;
      seen.push_back(choice);
      if (is_compiled_at_run_time(engine)) {
        compiled.push_back(std::move(configuration));
      } else if (add(configuration)) {
        ++settings[choice.engine];
      }
    }
  }
  if (!engines.empty()) return engines;
  for (std::size_t i = 0; i < std::min({compiled.size(), kMaxCompiledEngines, most}); ++i) add(compiled[i]);
  return engines;
}

std::optional<CudnnEngine> CudnnGraph::engine(const EngineChoice& choice) const {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph_);
  engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, choice.engine);
  target_.apply_to(engine);
  if (!engine.try_finalize() || !allows(engine)) return {};

  std::vector<CudnnDescriptor> knobs;
  for (const EngineKnob& knob : choice.knobs) {
    CudnnDescriptor& descriptor = knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    descriptor.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(knob.type));
    descriptor.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, knob.value);
    if (!descriptor.try_finalize()) return {};
  }
  CudnnDescriptor configuration(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  configuration.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!knobs.empty()) configuration.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
  if (!configuration.try_finalize()) return {};
  return build(std::move(configuration));
}

}  // namespace tutti::cuda
