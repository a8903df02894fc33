#pragma once
// What norm_speed times: the kernels of batch norm with several kinds of blocks, of which the first is used, on tensors
// in the GPU's memory that are large enough for several steps.

#include "backend/cuda/norm_application.cuh"
#include "backend/cuda/norm_gradients.cuh"
#include "backend/cuda/norm_statistics.cuh"
#include "backend/cuda/runtime.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tutti::cuda {

struct SumsKernel {
  const char* name;
  void (*sums)(NormSums);
  void (*gradient_sums[2])(NormGradientSums);  // of one gradient and of two
  int threads;
};

template <class Blocks>
SumsKernel sums_with(const char* name) {
  return {name,
          norm_sums<Bf16, Blocks>,
          {norm_gradient_sums<Bf16, 1, Blocks>, norm_gradient_sums<Bf16, 2, Blocks>},
          Blocks::kThreads};
}

inline std::vector<SumsKernel> sums_kernels() {
  return {sums_with<NormBlocks>("in use"), sums_with<SumBlocks<256, 2, 8>>("256x2"),
          sums_with<SumBlocks<512, 2, 4>>("512x2")};
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) { check(cudaMalloc(&data_, bytes)); }
  ~DeviceMemory() { static_cast<void>(cudaFree(data_)); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  template <class T = std::uint8_t>
  T* at(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(static_cast<std::uint8_t*>(data_) + offset);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

struct FillWork {
  Bf16* to;
  std::int64_t values;
  unsigned seed;
};

// Values from -1 to 1.
inline __global__ void fill(FillWork work) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < work.values; i += step) {
    unsigned bits = static_cast<unsigned>(i) * 2654435761u + work.seed * 40503u;
    bits = (bits ^ (bits >> 15)) * 2246822519u;
    bits ^= bits >> 13;
    work.to[i] = __float2bfloat16_rn(static_cast<float>(bits & 0xFFFFu) * (2.0f / 65536) - 1);
  }
}

struct Kind {
  ImageLayout layout;
  bool joins;  // adds a residual, and sums two gradients
};

// Tensors of several steps side by side, so that those of a step are in no cache when it comes again.
class Bench {
 public:
  Bench(std::size_t bytes, std::int64_t most_channels)
      : inputs_(bytes),
        residuals_(bytes),
        gradients_(bytes),
        outputs_(bytes),
        summed_(bytes),
        masks_(bytes / kPackBytes),
        partials_(std::size_t{8} * 2048 * static_cast<std::size_t>(most_channels)),
        blocks_done_(4096),
        channels_(static_cast<std::size_t>(most_channels) * 96 + 64) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check(cudaMemset(blocks_done_.at(), 0, blocks_done_.bytes()));
    check(cudaMemset(channels_.at(), 0, channels_.bytes()));
    check(cudaDeviceSynchronize());
    unsigned seed = 0;
    for (const DeviceMemory* memory : {&inputs_, &residuals_, &gradients_}) {
      launch(fill, {.blocks = 1024}, stream_,
             FillWork{memory->at<Bf16>(), static_cast<std::int64_t>(bytes / sizeof(Bf16)), ++seed});
    }
    launch(fill, {.blocks = 1024}, stream_, FillWork{masks_.at<Bf16>(), static_cast<std::int64_t>(bytes / 32), 7});
    const auto n = static_cast<std::size_t>(most_channels);
    auto* const doubles = channels_.at<double>();
    auto* const floats = channels_.at<float>(5 * n * sizeof(double));
    values_ = {doubles,    doubles + n,    doubles + 2 * n, floats,
               floats + n, floats + 2 * n, floats + 3 * n,  floats + 4 * n};
    scale_ = floats + 5 * n;
    shift_ = floats + 6 * n;
    results_ = floats + 7 * n;
    step_ = static_cast<std::int64_t>(n);
    const std::vector<float> ones(n, 1.25f);
    check(cudaMemcpy(scale_, ones.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    check(cudaStreamSynchronize(stream_));
  }
  ~Bench() { static_cast<void>(cudaStreamDestroy(stream_)); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  cudaStream_t stream() const { return stream_; }

  void sums(const SumsKernel& kernel, const Kind& kind, std::size_t slot) {
    launch(
        kernel.sums, grid_of(grid(kernel, kernel.sums, kind)), stream_,
        NormSums{
            grid(kernel, kernel.sums, kind),
            at(inputs_, kind, slot),
            partials(),
            {.channels = kind.layout.channels, .scale = scale_, .shift = shift_, .epsilon = 1e-5, .result = values_}});
  }
  void application(const Kind& kind, std::size_t slot) {
    const RowGrid rows = grid_of_values(kind);
    launch(norm_application<Bf16>, grid_of(rows), stream_,
           NormApplication{.grid = rows,
                           .input = at(inputs_, kind, slot),
                           .residual = kind.joins ? at(residuals_, kind, slot) : nullptr,
                           .output = at(outputs_, kind, slot),
                           .relu = true,
                           .positive = mask(kind, slot),
                           .channels = values_});
  }
  void gradient_sums(const SumsKernel& kernel, const Kind& kind, std::size_t slot) {
    const RowGrid rows = grid(kernel, kernel.gradient_sums[0], kind);
    launch(kernel.gradient_sums[kind.joins ? 1 : 0], grid_of(rows), stream_,
           NormGradientSums{
               .grid = rows,
               .gradients = {at(gradients_, kind, slot), kind.joins ? at(residuals_, kind, slot) : nullptr, nullptr},
               .input = at(inputs_, kind, slot),
               .positive = mask(kind, slot),
               .summed = kind.joins ? at(summed_, kind, slot) : nullptr,
               .partials = partials(),
               .channels = {.channels = kind.layout.channels,
                            .scale = scale_,
                            .epsilon = 1e-5,
                            .of = values_,
                            .scale_gradient = results_,
                            .shift_gradient = results_ + step_,
                            .mean = results_ + 2 * step_,
                            .variance = results_ + 3 * step_}});
  }
  void propagation(const Kind& kind, std::size_t slot) {
    const RowGrid rows = grid_of_values(kind);
    launch(norm_propagation<Bf16>, grid_of(rows), stream_,
           NormPropagation{.grid = rows,
                           .gradient = at(kind.joins ? summed_ : gradients_, kind, slot),
                           .positive = kind.joins ? nullptr : mask(kind, slot),
                           .input = at(inputs_, kind, slot),
                           .input_gradient = at(outputs_, kind, slot),
                           .channels = values_});
  }

  // Forgets the results of a pass.
  void clear(bool of_sums, bool is_forward) {
    check(cudaMemset(outputs_.at(), 0, outputs_.bytes()));
    const auto bytes = static_cast<std::size_t>(step_) * sizeof(float);
    if (of_sums && is_forward) check(cudaMemset(values_.rounded_mean, 0, 3 * bytes));
    if (of_sums && !is_forward) {
      check(cudaMemset(values_.slope, 0, 2 * bytes));
      check(cudaMemset(results_, 0, 4 * bytes));
      check(cudaMemset(summed_.at(), 0, summed_.bytes()));
    }
    check(cudaDeviceSynchronize());
  }

  // How many of these tensors lie side by side.
  std::size_t slots(const Kind& kind) const {
    return std::clamp<std::size_t>(inputs_.bytes() / tensor_bytes(kind), 1, 64);
  }
  static std::size_t tensor_bytes(const Kind& kind) { return static_cast<std::size_t>(kind.layout.values()) * 2; }

  // The results of the last pass: the tensors, and what is per channel.
  std::vector<float> results(const Kind& kind) const {
    std::vector<float> all;
    for (const DeviceMemory* memory : {&outputs_, &summed_}) {
      if (memory == &summed_ && !kind.joins) continue;
      std::vector<std::uint16_t> bits(tensor_bytes(kind) / 2);
      check(cudaMemcpy(bits.data(), memory->at(), tensor_bytes(kind), cudaMemcpyDeviceToHost));
      for (const std::uint16_t each : bits) {
        const std::uint32_t word = std::uint32_t{each} << 16U;
        float value = 0;
        std::memcpy(&value, &word, sizeof value);
        all.push_back(value);
      }
    }
    for (const float* from : {values_.factor, values_.offset, results_, results_ + step_, results_ + 2 * step_}) {
      std::vector<float> of_channels(static_cast<std::size_t>(kind.layout.channels));
      check(cudaMemcpy(of_channels.data(), from, of_channels.size() * sizeof(float), cudaMemcpyDeviceToHost));
      all.insert(all.end(), of_channels.begin(), of_channels.end());
    }
    return all;
  }

 private:
  template <class Kernel>
  RowGrid grid(const SumsKernel& of, Kernel kernel, const Kind& kind) const {
    return share_rows_for_sums(kind.layout, ElementType::bf16,
                               {.blocks = sum_blocks(kernel, 0, of.threads),
                                .width = RowGrid::kWidestOfSums,
                                .threads = of.threads,
                                .rows = 1});
  }
  static RowGrid grid_of_values(const Kind& kind) {
    return share_rows(kind.layout, ElementType::bf16, {.blocks = elementwise_blocks(0)});
  }
  void* at(const DeviceMemory& memory, const Kind& kind, std::size_t slot) const {
    return memory.at(slot * tensor_bytes(kind));
  }
  std::uint8_t* mask(const Kind& kind, std::size_t slot) const {
    return masks_.at(slot * tensor_bytes(kind) / kPackBytes);
  }
  PartialSums<float2> partials() const { return {partials_.at<float2>(), blocks_done_.at<unsigned>()}; }

  DeviceMemory inputs_;
  DeviceMemory residuals_;  // and second gradients
  DeviceMemory gradients_;
  DeviceMemory outputs_;
  DeviceMemory summed_;
  DeviceMemory masks_;
  DeviceMemory partials_;
  DeviceMemory blocks_done_;
  DeviceMemory channels_;
  NormChannels values_;
  float* scale_ = nullptr;
  float* shift_ = nullptr;
  float* results_ = nullptr;
  std::int64_t step_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace tutti::cuda
