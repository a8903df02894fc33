#pragma once
// The three passes of a convolution between activations within the network, each planned once for a shape. Only the
// planner knows that cuDNN computes them. Linear layers are convolutions of one pixel.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/backend/cuda_stream.hpp"
#include "tutti/backend/precision.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::cuda {

enum class ConvolutionPass { forward, input_gradient, weight_gradient };
constexpr std::array<std::string_view, 3> words_of(ConvolutionPass) {
  return {"forward", "input-gradient", "weight-gradient"};
}

// Images are samples, rows, columns, channels; filters are outputs, rows, columns, channels. Dense, channels and
// outputs with their padding, in bf16 when the precision is bf16, else in f32.
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

  std::int64_t output_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::int64_t output_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  friend bool operator==(const ConvolutionShape&, const ConvolutionShape&) = default;
};

// A pass writes the one that it computes and reads the others.
struct ConvolutionTensors {
  void* input = nullptr;    // or its gradient
  void* filters = nullptr;  // likewise
  void* output = nullptr;   // or, in the backward passes, its gradient
};

class ConvolutionPlan {
 public:
  virtual ~ConvolutionPlan() = default;
  // The plan uses the first bytes of the stream's scratch memory while it runs.
  virtual std::size_t scratch_bytes() const = 0;
  // Asynchronous. `scratch` has at least so many bytes.
  virtual void run(CudaStream& stream, const ConvolutionTensors& tensors, void* scratch) = 0;
};

class ConvolutionPlanner {
 public:
  virtual ~ConvolutionPlanner() = default;
  // Throws a usage error naming the shape where the library has no way to compute it.
  virtual std::unique_ptr<ConvolutionPlan> plan(ConvolutionPass pass, const ConvolutionShape& shape) = 0;
  // As in Backend.
  virtual std::string choices() const = 0;
  virtual bool adopt_choices(const std::string& lines) = 0;
};

// Measures, with memory of its own, how many milliseconds one run of each plan takes; a plan that fails takes
// infinitely long. Empty where the device has no room for that.
std::vector<float> measure_plans(int device, const ConvolutionShape& shape,
                                 std::span<const std::unique_ptr<ConvolutionPlan>> plans);

std::unique_ptr<ConvolutionPlanner> make_convolution_planner(const CudaOptions& options);
// "cuDNN 9.19.0"
std::string convolution_library();

}  // namespace tutti::cuda
