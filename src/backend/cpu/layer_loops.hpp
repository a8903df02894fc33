#pragma once
// The loops of layers without products, compiled for each instruction set, which give the same bits: sums use 16
// lanes, which are added in a fixed order, and multiply-adds are not fused.

#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

#include "backend/cpu/element.hpp"
#include "backend/cpu/format.hpp"

#include <span>
#include <vector>

namespace tutti::cpu {

inline constexpr std::int64_t kLanes = 16;
// Lane i of a sum over a segment belongs to channel i % period.
constexpr std::int64_t lanes_of(std::int64_t period) { return kLanes % period == 0 ? kLanes : period; }
// Per-channel values are passed repeated: entry i belongs to channel i % period.
constexpr std::int64_t repeated_length(std::int64_t period) { return lanes_of(period) + kLanes; }

// The floats of scratch memory that a pass with sums needs.
constexpr std::int64_t scratch_length(std::int64_t period) { return 3 * repeated_length(period); }

template <class T>
struct MomentsPass {
  Segment segment;
  const T* input;
  double* sums;  // [lanes_of(period)], added to
  double* squares;
  float* scratch;
};

// y = (x - mean) * factor + offset, then + residual, then max(0, y).
template <class T>
struct NormalizePass {
  Segment segment;
  const T* input;
  const T* residual;  // or null
  T* output;
  const float* mean;  // repeated, as are the next two
  const float* factor;
  const float* offset;
  bool relu;
};

// gradients[0] = g, the sum of all gradients, masked by ReLU; and the sums of g and g * (x - mean).
template <class T>
struct GradientStatisticsPass {
  Segment segment;
  std::span<T* const> gradients;
  const T* output;  // of ReLU: where it is not positive, g is 0; null without ReLU
  const T* input;
  const float* mean;
  double* sums;  // [lanes_of(period)], added to
  double* products;
  float* scratch;
};

// dx = dy * factor - (x - mean) * slope - offset.
template <class T>
struct PropagatePass {
  Segment segment;
  const T* gradient;
  const T* input;
  T* input_gradient;
  const float* mean;
  const float* factor;
  const float* slope;
  const float* offset;
};

template <class T>
struct AddPass {
  std::int64_t elements;
  const T* input;
  const T* residual;
  T* output;
  bool relu;
};

// gradients[0] = the sum of all gradients, masked by ReLU.
template <class T>
struct SumGradientsPass {
  std::int64_t elements;
  std::span<T* const> gradients;
  const T* output;  // of ReLU: where it is not positive, the sum is 0; null without ReLU
  T* copy;          // a second copy of the result, or null
};

template <class T>
struct ElementwisePass {
  Segment segment;  // of a period of 1
  const T* input;
  T* output;
  ElementwiseSpec spec;
};

// The sum of all gradients, times the derivative.
template <class T>
struct ElementwiseGradientPass {
  Segment segment;
  std::span<T* const> gradients;
  const T* values;  // the input or output, whichever backward_reads() lists; null for scale
  T* input_gradient;
  ElementwiseSpec spec;
};

// Pooling of one block of channels of one image: values of the image and results of the output or, for the gradient,
// the reverse.
template <class T>
struct PoolPass {
  std::int64_t rows, columns, period;  // of the image
  std::int64_t output_rows, output_columns;
  std::int64_t kernel, stride, padding;
  const T* values;
  T* results;
  std::uint16_t* chosen;  // the place of each output's maximum in its window, row by row; null: none, or an average
};

template <class T>
struct LayerLoops {
  void (*moments)(const MomentsPass<T>&);
  void (*normalize)(const NormalizePass<T>&);
  void (*gradient_statistics)(const GradientStatisticsPass<T>&);
  void (*propagate)(const PropagatePass<T>&);
  void (*add)(const AddPass<T>&);
  void (*sum_gradients)(const SumGradientsPass<T>&);
  void (*elementwise)(const ElementwisePass<T>&);
  void (*elementwise_gradient)(const ElementwiseGradientPass<T>&);
  void (*max_pool)(const PoolPass<T>&);
  void (*average_pool)(const PoolPass<T>&);
  void (*pool_gradient)(const PoolPass<T>&);
};

// T is float or Bf16. Callers keep the reference instead of calling this per segment.
template <class T>
const LayerLoops<T>& layer_loops();

// The first step of a backward pass: adds the other gradients of the output, if more than one layer reads it, to
// pass.output_gradients[0], and sets that to 0 where the values of a fused ReLU, if any, are not positive. All have the
// format of `output`.
void sum_output_gradients(const LayerBackward& pass, const Layout& output, const void* of_relu = nullptr);

// The output gradients as pointers to their storage type.
template <class T>
std::vector<T*> typed_gradients(const LayerBackward& pass) {
  std::vector<T*> gradients;
  for (void* gradient : pass.output_gradients) gradients.push_back(static_cast<T*>(gradient));
  return gradients;
}

}  // namespace tutti::cpu
