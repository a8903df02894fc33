#include "tutti/base/error.hpp"

#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/cuda/weights.hpp"
#include "flat.cuh"
#include "floats.cuh"
#include "grids.cuh"

#include <algorithm>
#include <string>

namespace tutti::cuda {
namespace {

constexpr int kThreads = RowGrid::kThreads;
constexpr int kTileValues = 4608;  // one output of 3x3 filters over 512 channels

// A block transposes one tile of channels x positions of one output.
struct Tiles {
  FilterLayout layout;
  int channels;
  int positions;
  std::int64_t along;       // tiles over positions
  std::int64_t per_output;  // over channels, too

  std::int64_t count() const { return layout.outputs * per_output; }
};

Tiles tiles_of(const FilterLayout& layout, int pack) {
  const auto positions = std::min<std::int64_t>(layout.positions, kTileValues / pack);
  const auto channels = std::min<std::int64_t>(layout.padded_channels, kTileValues / positions / pack * pack);
  const std::int64_t along = (layout.positions + positions - 1) / positions;
  const std::int64_t across = (layout.padded_channels + channels - 1) / channels;
  return {layout, static_cast<int>(channels), static_cast<int>(positions), along, along * across};
}

// One tile and its position.
struct Tile {
  int channels;
  int positions;
  int real_channels;
  std::int64_t canonical;  // the index of its first value
  std::int64_t packed;
};

__device__ inline Tile tile_at(const Tiles& tiles, std::int64_t index) {
  const FilterLayout& layout = tiles.layout;
  const std::int64_t output = index / tiles.per_output;
  const std::int64_t within = index - output * tiles.per_output;
  const std::int64_t channel = within / tiles.along * tiles.channels;
  const std::int64_t position = within % tiles.along * tiles.positions;
  const auto least = [](std::int64_t a, std::int64_t b) { return static_cast<int>(a < b ? a : b); };
  return {least(tiles.channels, layout.padded_channels - channel), least(tiles.positions, layout.positions - position),
          least(tiles.channels, layout.channels - channel),
          (output * layout.channels + channel) * layout.positions + position,
          (output * layout.positions + position) * layout.padded_channels + channel};
}

// Values that lie a multiple of 32 apart are assigned to different banks.
__device__ inline int slot(int value) { return value + value / 32; }
constexpr int kSlots = kTileValues + kTileValues / 32;

// The tiles of one layer.
struct PackEntry {
  Tiles tiles;
  const float* canonical;
  void* packed;
};
using PackTable = BlockTable<PackEntry, 32>;
static_assert(sizeof(PackTable) < 4096);  // the limit of kernel arguments

template <class T>
__global__ void pack_filters(const PackTable table) {
  constexpr int kPack = Pack<T>::kSize;
  __shared__ float values[kSlots];
  const int layer = table.find_entry(blockIdx.x);
  const Tiles tiles = table.entries[layer].tiles;
  const Tile tile = tile_at(tiles, blockIdx.x - table.first_blocks[layer]);
  const int threads = static_cast<int>(blockDim.x);

  const float* const from = table.entries[layer].canonical + tile.canonical;
  for (int i = static_cast<int>(threadIdx.x); i < tile.channels * tile.positions; i += threads) {
    const int channel = i / tile.positions;
    const int position = i - channel * tile.positions;
    values[slot(i)] = channel < tile.real_channels ? from[channel * tiles.layout.positions + position] : 0.0f;
  }
  __syncthreads();

  T* const to = static_cast<T*>(table.entries[layer].packed) + tile.packed;
  const int packs = tile.channels / kPack;
  for (int i = static_cast<int>(threadIdx.x); i < tile.positions * packs; i += threads) {
    const int position = i / packs;
    const int channel = (i - position * packs) * kPack;
    Pack<T> pack;
    for (int k = 0; k < kPack; ++k) set(pack.values[k], values[slot((channel + k) * tile.positions + position)]);
    *reinterpret_cast<Pack<T>*>(to + position * tiles.layout.padded_channels + channel) = pack;
  }
}

template <class T>
__device__ inline void unpack_tile(const Tiles& tiles, const T* packed, float* canonical, float* values) {
  constexpr int kPack = Pack<T>::kSize;
  const Tile tile = tile_at(tiles, blockIdx.x);
  const int threads = static_cast<int>(blockDim.x);

  const T* const from = packed + tile.packed;
  const int packs = tile.channels / kPack;
  for (int i = static_cast<int>(threadIdx.x); i < tile.positions * packs; i += threads) {
    const int position = i / packs;
    const int channel = (i - position * packs) * kPack;
    const auto pack = *reinterpret_cast<const Pack<T>*>(from + position * tiles.layout.padded_channels + channel);
    for (int k = 0; k < kPack; ++k) values[slot((channel + k) * tile.positions + position)] = to_float(pack.values[k]);
  }
  __syncthreads();

  float* const to = canonical + tile.canonical;
  for (int i = static_cast<int>(threadIdx.x); i < tile.real_channels * tile.positions; i += threads) {
    const int channel = i / tile.positions;
    const int position = i - channel * tile.positions;
    to[channel * tiles.layout.positions + position] = values[slot(i)];
  }
}

__device__ inline void sum_partials(const FilterGradients& request, std::int64_t output) {
  const int thread = static_cast<int>(threadIdx.x);
  double sum[1] = {0};
  for (std::int64_t i = thread; i < request.partials; i += kThreads) {
    sum[0] += request.bias_partials[i * request.layout.padded_outputs + output];
  }
  add_rows({1, kThreads}, sum);
  if (thread == 0) request.bias[output] = static_cast<float>(sum[0]);
}

// The blocks after those of the tiles have one bias each.
template <class T>
__global__ void unpack_gradients(Tiles tiles, std::int64_t tile_count, FilterGradients request) {
  __shared__ float values[kSlots];
  if (blockIdx.x < tile_count) {
    unpack_tile(tiles, static_cast<const T*>(request.packed), request.canonical, values);
  } else {
    sum_partials(request, blockIdx.x - tile_count);
  }
}

template <class T>
void pack(cudaStream_t stream, std::span<const FilterPacking> requests) {
  PackTable table;
  for (const FilterPacking& request : requests) {
    const Tiles tiles = tiles_of(request.layout, Pack<T>::kSize);
    table.add({tiles, request.canonical, request.packed}, tiles.count());
  }
  launch(pack_filters<T>, {.blocks = table.blocks, .threads = kThreads}, stream, table);
}

template <class T>
void unpack(cudaStream_t stream, const FilterGradients& request) {
  const Tiles tiles = tiles_of(request.layout, Pack<T>::kSize);
  const std::int64_t biases = request.bias == nullptr ? 0 : request.layout.outputs;
  launch(unpack_gradients<T>, {.blocks = tiles.count() + biases, .threads = kThreads}, stream, tiles, tiles.count(),
         request);
}

}  // namespace

void launch_pack(cudaStream_t stream, std::span<const FilterPacking> requests) {
  for_each_table<PackTable>(requests, [&](std::span<const FilterPacking> some) {
    some.front().type == ElementType::bf16 ? pack<Bf16>(stream, some) : pack<float>(stream, some);
  });
}

void launch_unpack(cudaStream_t stream, const FilterGradients& request) {
  request.type == ElementType::bf16 ? unpack<Bf16>(stream, request) : unpack<float>(stream, request);
}

CudaWeights::CudaWeights(const Processor& processor, const LayerSpec& spec, std::span<const Tensor> values)
    : device_(processor.device), type_(processor.type), spec_(spec), values_(values.begin(), values.end()) {
  for (const Tensor& value : values_) device_f32(value);  // throws unless they are f32 in a GPU's memory
}

FilterPacking CudaWeights::packing() const { return {layout_, type_, device_f32(values_.at(0)), packed_.data()}; }

void CudaWeights::refresh(Stream& stream) {
  LayerWeights* const layers[] = {this};
  refresh(as_cuda_stream(stream), layers);
}

void CudaWeights::refresh(CudaStream& stream, std::span<LayerWeights* const> layers) {
  std::vector<FilterPacking> packings;
  for (LayerWeights* const layer : layers) {
    CudaWeights& weights = cuda_weights(layer);
    const std::lock_guard lock(weights.mutex_);
    weights.refreshed_on_ = &stream;
    if (weights.packed_.data() != nullptr) packings.push_back(weights.packing());
  }
  use_cuda_device(stream.device());
  launch_pack(native(stream), packings);
}

void* CudaWeights::packed(const FilterLayout& layout) {
  const std::lock_guard lock(mutex_);
  if (packed_.data() == nullptr) {
    layout_ = layout;
    packed_ = allocate_cuda(device_, static_cast<std::size_t>(layout.packed_values()) * bytes_of(type_));
    if (refreshed_on_ != nullptr) {
      // Not cudaDeviceSynchronize(), which would also wait for collectives and thus for other ranks.
      const auto stream = make_cuda_stream(device_);
      stream->wait_for(*refreshed_on_);  // which may still write the values
      const FilterPacking mine[] = {packing()};
      launch_pack(native(*stream), mine);
      stream->synchronize();
    }
  }
  if (layout != layout_) {
    throw Error(ErrorSource::internal,
                "two plans of " + std::string(type_name(spec_)) + " read their weights differently");
  }
  return packed_.data();
}

CudaWeights& cuda_weights(LayerWeights* weights) {
  auto* const found = dynamic_cast<CudaWeights*>(weights);
  if (found == nullptr) throw Error(ErrorSource::internal, "a plan needs weights made by the cuda backend");
  return *found;
}

CudaWeights& cuda_weights(const LayerSpec& spec, const LayerRequest& request) {
  CudaWeights& weights = cuda_weights(request.weights);
  require_weights(weights.spec(), weights.canonical(), spec, request.input.shape.without_first());
  return weights;
}

std::unique_ptr<LayerWeights> CudaBackend::make_weights(const LayerSpec& spec, std::span<const Tensor> values) {
  return std::make_unique<CudaWeights>(processor_, spec, values);
}

void CudaBackend::refresh(Stream& stream, std::span<LayerWeights* const> layers) {
  CudaWeights::refresh(as_cuda_stream(stream), layers);
}

}  // namespace tutti::cuda
