// Convolutions by plain loops, in place of cuDNN's: enqueued like kernels, so that a stream's order holds for them.

#include "backend/cuda/convolution.hpp"
#include "backend/cuda/floats.cuh"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace tutti::cuda {
namespace {

std::vector<float> floats(const void* from, std::int64_t values, bool bf16) {
  std::vector<float> result(static_cast<std::size_t>(values));
  for (std::int64_t i = 0; i < values; ++i) {
    result[static_cast<std::size_t>(i)] =
        bf16 ? to_float(static_cast<const Bf16*>(from)[i]) : static_cast<const float*>(from)[i];
  }
  return result;
}

void store(const std::vector<float>& values, void* to, bool bf16) {
  if (!bf16) {
    std::ranges::copy(values, static_cast<float*>(to));
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) set(static_cast<Bf16*>(to)[i], values[i]);
}

// to[i] += factor * from[i]. Many factors are zero after ReLU and in padding.
void add_scaled(float factor, const float* from, float* to, std::int64_t count) {
  if (factor == 0) return;
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

// Calls `visit` with the number of an output pixel, of a pixel of the image under the window, and of the position
// within the window, for all of one sample.
template <class Visit>
void for_each_tap(const ConvolutionShape& shape, std::int64_t sample, const Visit& visit) {
  const std::int64_t rows = shape.output_height();
  const std::int64_t columns = shape.output_width();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      for (std::int64_t i = 0; i < shape.kernel_height; ++i) {
        for (std::int64_t j = 0; j < shape.kernel_width; ++j) {
          const std::int64_t y = row * shape.stride + i * shape.dilation - shape.padding;
          const std::int64_t x = column * shape.stride + j * shape.dilation - shape.padding;
          if (y < 0 || y >= shape.height || x < 0 || x >= shape.width) continue;
          visit((sample * rows + row) * columns + column, (sample * shape.height + y) * shape.width + x,
                i * shape.kernel_width + j);
        }
      }
    }
  }
}

class Naive {
 public:
  Naive(const ConvolutionShape& shape, const ConvolutionTensors& tensors)
      : shape_(shape), tensors_(tensors), bf16_(shape.precision == Precision::bf16) {}

  void forward() const {
    const auto input = floats(tensors_.input, inputs(), bf16_);
    const auto filters = floats(tensors_.filters, weights(), bf16_);
    std::vector<float> by_channel(filters.size());  // positions, channels, outputs
    for (std::int64_t k = 0; k < shape_.outputs; ++k) {
      for (std::int64_t i = 0; i < taps(); ++i)
        by_channel[index(i * shape_.outputs + k)] = filters[index(k * taps() + i)];
    }
    std::vector<float> output(index(outputs()));
    for (std::int64_t n = 0; n < shape_.samples; ++n) {
      for_each_tap(shape_, n, [&](std::int64_t to, std::int64_t from, std::int64_t position) {
        for (std::int64_t c = 0; c < shape_.channels; ++c) {
          const std::int64_t first = c / per_group() * group_outputs();
          add_scaled(input[index(from * shape_.channels + c)],
                     &by_channel[index((position * per_group() + c % per_group()) * shape_.outputs + first)],
                     &output[index(to * shape_.outputs + first)], group_outputs());
        }
      });
    }
    store(output, tensors_.output, bf16_);
  }

  void input_gradient() const {
    const auto filters = floats(tensors_.filters, weights(), bf16_);
    const auto gradient = floats(tensors_.output, outputs(), bf16_);
    std::vector<float> result(index(inputs()));
    for (std::int64_t n = 0; n < shape_.samples; ++n) {
      for_each_tap(shape_, n, [&](std::int64_t from, std::int64_t to, std::int64_t position) {
        for (std::int64_t k = 0; k < shape_.outputs; ++k) {
          add_scaled(gradient[index(from * shape_.outputs + k)], &filters[index(k * taps() + position * per_group())],
                     &result[index(to * shape_.channels + first_input(k))], per_group());
        }
      });
    }
    store(result, tensors_.input, bf16_);
  }

  // Sample by sample, so that sums over many pixels stay precise.
  void weight_gradient() const {
    const auto input = floats(tensors_.input, inputs(), bf16_);
    const auto gradient = floats(tensors_.output, outputs(), bf16_);
    std::vector<float> result(index(weights()));
    std::vector<float> of_sample(result.size());
    for (std::int64_t n = 0; n < shape_.samples; ++n) {
      std::ranges::fill(of_sample, 0.0f);
      for_each_tap(shape_, n, [&](std::int64_t from, std::int64_t at, std::int64_t position) {
        for (std::int64_t k = 0; k < shape_.outputs; ++k) {
          add_scaled(gradient[index(from * shape_.outputs + k)], &input[index(at * shape_.channels + first_input(k))],
                     &of_sample[index(k * taps() + position * per_group())], per_group());
        }
      });
      add_scaled(1, of_sample.data(), result.data(), weights());
    }
    store(result, tensors_.filters, bf16_);
  }

  void scale_result(ConvolutionPass pass, float factor) const {
    const bool is_forward = pass == ConvolutionPass::forward;
    const bool is_input = pass == ConvolutionPass::input_gradient;
    void* const result = is_forward ? tensors_.output : is_input ? tensors_.input : tensors_.filters;
    auto values = floats(result, is_forward ? outputs() : is_input ? inputs() : weights(), bf16_);
    for (float& value : values) value *= factor;
    store(values, result, bf16_);
  }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  std::int64_t per_group() const { return shape_.group_channels(); }
  std::int64_t group_outputs() const { return shape_.outputs / shape_.groups; }
  std::int64_t first_input(std::int64_t output) const { return output / group_outputs() * per_group(); }
  std::int64_t taps() const { return shape_.kernel_height * shape_.kernel_width * per_group(); }
  std::int64_t weights() const { return shape_.outputs * taps(); }
  std::int64_t inputs() const { return shape_.samples * shape_.height * shape_.width * shape_.channels; }
  std::int64_t outputs() const {
    return shape_.samples * shape_.output_height() * shape_.output_width() * shape_.outputs;
  }

  ConvolutionShape shape_;
  ConvolutionTensors tensors_;
  bool bf16_;
};

constexpr std::size_t kScratchBytes = 1000;

// Overwrites its scratch memory, as a library may.
__global__ void compute(ConvolutionPass pass, ConvolutionShape shape, ConvolutionTensors tensors, void* scratch) {
  std::memset(scratch, 0xFF, kScratchBytes);
  const Naive naive(shape, tensors);
  switch (pass) {
    case ConvolutionPass::forward:
      return naive.forward();
    case ConvolutionPass::input_gradient:
      return naive.input_gradient();
    case ConvolutionPass::weight_gradient:
      return naive.weight_gradient();
  }
}

// Makes the result wrong by this relative error.
__global__ void spoil(ConvolutionPass pass, ConvolutionShape shape, ConvolutionTensors tensors, float error) {
  Naive(shape, tensors).scale_result(pass, 1 + error);
}

// What the environment says of the engines; see control.hpp.
struct Engines {
  int uncapturable = 0;
  float error = 0;
  int inexact = 0;
  int count = 1;

  static Engines from_environment() {
    Engines engines;
    if (const char* const text = std::getenv("TUTTI_STANDIN_UNCAPTURABLE")) engines.uncapturable = std::stoi(text);
    if (const char* const text = std::getenv("TUTTI_STANDIN_INEXACT")) {
      std::istringstream(text) >> engines.error >> engines.inexact;
    }
    if (engines.uncapturable > 0 || engines.inexact > 0) engines.count = 2;
    if (const char* const text = std::getenv("TUTTI_STANDIN_ENGINES")) engines.count = std::stoi(text);
    return engines;
  }
};

class NaivePlan final : public ConvolutionPlan {
 public:
  NaivePlan(ConvolutionPass pass, const ConvolutionShape& shape, int engine, const Engines& engines)
      : pass_(pass),
        shape_(shape),
        engine_(engine),
        fails_in_capture_(engine < engines.uncapturable),
        error_(engine < engines.inexact ? engines.error : 0) {}

  EngineChoice choice() const override { return {.engine = engine_}; }
  std::size_t scratch_bytes() const override { return kScratchBytes; }
  void run(CudaStream& stream, const ConvolutionTensors& tensors, void* scratch) override {
    const auto native = static_cast<cudaStream_t>(stream.native());
    if (fails_in_capture_) use_memory_of_its_own();
    launch(compute, {.threads = 1}, native, pass_, shape_, tensors, scratch);
    if (error_ != 0) launch(spoil, {.threads = 1}, native, pass_, shape_, tensors, error_);
  }

 private:
  static void use_memory_of_its_own() {
    void* memory = nullptr;
    if (cudaMalloc(&memory, 1) != cudaSuccess) check(CUDNN_STATUS_EXECUTION_FAILED);
    check(cudaFree(memory));
  }

  ConvolutionPass pass_;
  ConvolutionShape shape_;
  int engine_;
  bool fails_in_capture_;
  float error_;
};

class NaiveLibrary final : public ConvolutionLibrary {
 public:
  ConvolutionPlans propose(ConvolutionPass pass, const ConvolutionShape& shape, std::size_t most) override {
    ConvolutionPlans plans;
    for (int engine = 0; engine < engines_.count && plans.size() < most; ++engine)
      plans.push_back(std::make_shared<NaivePlan>(pass, shape, engine, engines_));
    return plans;
  }
  std::shared_ptr<ConvolutionPlan> build(ConvolutionPass pass, const ConvolutionShape& shape,
                                         const EngineChoice& choice) override {
    if (choice.engine < 0 || choice.engine >= engines_.count) return nullptr;
    return std::make_shared<NaivePlan>(pass, shape, static_cast<int>(choice.engine), engines_);
  }

 private:
  Engines engines_ = Engines::from_environment();
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> make_convolution_library(int /*device*/) {
  return std::make_unique<NaiveLibrary>();
}

std::string convolution_library() { return "plain loops"; }

}  // namespace tutti::cuda
