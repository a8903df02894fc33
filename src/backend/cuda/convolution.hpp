#pragma once
// The three passes of a convolution between activations in the native layout, each planned once per shape. Only the
// library depends on cuDNN. Linear layers are convolutions over one pixel.

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/backend/precision.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::cuda {

enum class ConvolutionPass { forward, input_gradient, weight_gradient };
constexpr std::array<std::string_view, 3> enum_names(ConvolutionPass) {
  return {"forward", "input-gradient", "weight-gradient"};
}

// Images are samples, rows, columns, channels; filters are outputs, rows, columns, channels of a group. Dense, channels
// and outputs with their padding, in bf16 when the precision is bf16, else in f32.
struct ConvolutionShape {
  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t outputs = 0;
  std::int64_t kernel_height = 1;
  std::int64_t kernel_width = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  Precision precision = Precision::fp32;
  std::int64_t groups = 1;
  std::int64_t dilation = 1;

  std::int64_t group_channels() const { return channels / groups; }
  std::int64_t output_height() const { return positions(height, kernel_height); }
  std::int64_t output_width() const { return positions(width, kernel_width); }
  std::int64_t positions(std::int64_t extent, std::int64_t kernel) const {
    return (extent + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  }
  friend bool operator==(const ConvolutionShape&, const ConvolutionShape&) = default;
};

// A pass writes one of these and reads the others.
struct ConvolutionTensors {
  void* input = nullptr;    // or its gradient
  void* filters = nullptr;  // or their gradient
  void* output = nullptr;   // or, in the backward passes, its gradient
};

struct EngineKnob {
  std::int64_t type = 0;
  std::int64_t value = 0;
  friend bool operator==(const EngineKnob&, const EngineKnob&) = default;
};

// The library's number of an algorithm, and its settings.
struct EngineChoice {
  std::int64_t engine = 0;
  std::vector<EngineKnob> knobs{};
  friend bool operator==(const EngineChoice&, const EngineChoice&) = default;
};

class ConvolutionPlan {
 public:
  virtual ~ConvolutionPlan() = default;
  virtual EngineChoice choice() const = 0;
  // The size of the workspace.
  virtual std::size_t scratch_bytes() const = 0;
  // Asynchronous. `scratch` has at least scratch_bytes().
  virtual void run(CudaStream& stream, const ConvolutionTensors& tensors, void* scratch) = 0;
};

// The most candidates of a search.
inline constexpr std::size_t kMaxCandidates = 24;

using ConvolutionPlans = std::vector<std::shared_ptr<ConvolutionPlan>>;

// What computes convolutions on one GPU: cuDNN.
class ConvolutionLibrary {
 public:
  virtual ~ConvolutionLibrary() = default;
  // The first plans, at most `most`, that the library proposes, the one first that it expects to be fastest.
  virtual ConvolutionPlans propose(ConvolutionPass pass, const ConvolutionShape& shape, std::size_t most) = 0;
  // The plan that choice() described, possibly in another process; null if the library does not have it.
  virtual std::shared_ptr<ConvolutionPlan> build(ConvolutionPass pass, const ConvolutionShape& shape,
                                                 const EngineChoice& choice) = 0;
};

std::unique_ptr<ConvolutionLibrary> make_convolution_library(int device);
// "cuDNN 9.19.0"
std::string convolution_library();

}  // namespace tutti::cuda
