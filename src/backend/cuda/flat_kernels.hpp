#pragma once
// The kernels of flat.cpp. Pointers are to a GPU's memory; where one may be null, it stands for a factor of 1.

#include "backend/adamw_factors.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

struct AddElements {
  float* to;
  const float* from;
};

// to = kept * to + share * from
struct BlendElements {
  float* to;
  const float* from;
  float kept;
  float share;
};

struct SearchElements {
  const float* values;
  const std::int64_t* ends;
  std::int64_t slices;
  std::int64_t place;
  std::int32_t* found;
  const std::int32_t* only_if;  // or null
};

struct SgdElements {
  float* weights;
  const float* gradients;
  float* velocity;  // or null
  float learning_rate;
  float momentum;
  float weight_decay;
  bool nesterov;
  const float* gradient_factor;  // or null
  const float* rate_factor;      // or null
};

struct AdamWElements {
  float* weights;
  const float* gradients;
  float* first;
  float* second;
  AdamWFactors of;
  const float* gradient_factor;  // or null
};

struct FlatExtent {
  std::int64_t elements = 0;
  bool aligned = false;  // all pointers, to 16 bytes
};

// All asynchronous.
void launch_add(cudaStream_t stream, const AddElements& work, const FlatExtent& extent);
void launch_blend(cudaStream_t stream, const BlendElements& work, const FlatExtent& extent);
void launch_search(cudaStream_t stream, const SearchElements& work, const FlatExtent& extent);
void launch_sgd(cudaStream_t stream, const SgdElements& work, const FlatExtent& extent);
void launch_adamw(cudaStream_t stream, const AdamWElements& work, const FlatExtent& extent);

inline constexpr std::int64_t kSquaresBlock = 4096;

// As many tensors as fit the arguments of a kernel.
struct SquaresTable {
  static constexpr int kMost = 128;

  struct Entry {
    const float* values;
    std::int64_t elements;
    std::int64_t first_block;  // of all blocks of the table
  };
  int tensors = 0;
  std::int64_t blocks = 0;
  Entry entries[kMost];
};

struct SquaresSums {
  double* by_block;
  double* by_tensor;
};

void launch_sum_squares(cudaStream_t stream, const SquaresTable& table, const SquaresSums& sums);

struct RunsWork {
  const double* values;
  const std::int64_t* ends;
  std::int64_t runs;
  double* sums;
};
void launch_sum_runs(cudaStream_t stream, const RunsWork& work);

struct ClipWork {
  const double* squares;
  std::int64_t tensors;
  double most;
  float* factor;
};
void launch_clip_factor(cudaStream_t stream, const ClipWork& work);

struct TrustWork {
  const double* weight_squares;
  const double* gradient_squares;
  const float* gradient_factor;  // or null
  double trust;
  double weight_decay;
  float* factors;
  std::int64_t tensors;
};
void launch_trust_factors(cudaStream_t stream, const TrustWork& work);

}  // namespace tutti::cuda
