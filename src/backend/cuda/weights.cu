#include "tutti/base/error.hpp"

#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/cuda/weights.hpp"
#include "flat.cuh"
#include "floats.cuh"

#include <algorithm>
#include <iterator>
#include <string>

namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;
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
struct FilterEntry {
  Tiles tiles;
  float* canonical;
  void* packed;
};
using FilterTable = BlockTable<FilterEntry, 32>;
static_assert(sizeof(FilterTable) < 4096);  // the limit of kernel arguments

// Channels that are read and written in one access.
template <class T, int kSize>
struct alignas(kSize * sizeof(T)) ChannelPack {
  T values[kSize];
};

template <class T, int kPack>
__global__ void pack_filters(const FilterTable table) {
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
    ChannelPack<T, kPack> pack;
    for (int k = 0; k < kPack; ++k) set(pack.values[k], values[slot((channel + k) * tile.positions + position)]);
    *reinterpret_cast<ChannelPack<T, kPack>*>(to + position * tiles.layout.padded_channels + channel) = pack;
  }
}

template <class T, int kPack>
__global__ void unpack_filters(const FilterTable table) {
  __shared__ float values[kSlots];
  const int layer = table.find_entry(blockIdx.x);
  const Tiles tiles = table.entries[layer].tiles;
  const Tile tile = tile_at(tiles, blockIdx.x - table.first_blocks[layer]);
  const int threads = static_cast<int>(blockDim.x);

  const T* const from = static_cast<const T*>(table.entries[layer].packed) + tile.packed;
  const int packs = tile.channels / kPack;
  for (int i = static_cast<int>(threadIdx.x); i < tile.positions * packs; i += threads) {
    const int position = i / packs;
    const int channel = (i - position * packs) * kPack;
    const auto pack =
        *reinterpret_cast<const ChannelPack<T, kPack>*>(from + position * tiles.layout.padded_channels + channel);
    for (int k = 0; k < kPack; ++k) values[slot((channel + k) * tile.positions + position)] = to_float(pack.values[k]);
  }
  __syncthreads();

  float* const to = table.entries[layer].canonical + tile.canonical;
  for (int i = static_cast<int>(threadIdx.x); i < tile.real_channels * tile.positions; i += threads) {
    const int channel = i / tile.positions;
    const int position = i - channel * tile.positions;
    to[channel * tiles.layout.positions + position] = values[slot(i)];
  }
}

using FilterKernel = void (*)(FilterTable);

// With packs of channels, or where a group has too few of them, one by one.
void launch_for(cudaStream_t stream, std::span<const PackedFilters> layers, FilterKernel in_packs,
                FilterKernel one_by_one) {
  const auto is_packed = [](const PackedFilters& filters) {
    return filters.layout.padded_channels % static_cast<std::int64_t>(kPackBytes / bytes_of(filters.type)) == 0;
  };
  for (const bool packed : {true, false}) {
    std::vector<PackedFilters> chosen;
    std::ranges::copy_if(layers, std::back_inserter(chosen),
                         [&](const PackedFilters& filters) { return is_packed(filters) == packed; });
    for_each_table<FilterTable>(std::span<const PackedFilters>(chosen), [&](std::span<const PackedFilters> some) {
      FilterTable table;
      for (const PackedFilters& filters : some) {
        const int pack = packed ? static_cast<int>(kPackBytes / bytes_of(filters.type)) : 1;
        const Tiles tiles = tiles_of(filters.layout, pack);
        table.add({tiles, filters.canonical, filters.packed}, tiles.count());
      }
      launch(packed ? in_packs : one_by_one, {.blocks = table.blocks, .threads = kThreads}, stream, table);
    });
  }
}

bool is_bf16(std::span<const PackedFilters> layers) {
  return !layers.empty() && layers.front().type == ElementType::bf16;
}

}  // namespace

void launch_pack(cudaStream_t stream, std::span<const PackedFilters> layers) {
  if (is_bf16(layers)) return launch_for(stream, layers, pack_filters<Bf16, Pack<Bf16>::kSize>, pack_filters<Bf16, 1>);
  launch_for(stream, layers, pack_filters<float, Pack<float>::kSize>, pack_filters<float, 1>);
}

void launch_unpack(cudaStream_t stream, std::span<const PackedFilters> layers) {
  if (is_bf16(layers)) {
    return launch_for(stream, layers, unpack_filters<Bf16, Pack<Bf16>::kSize>, unpack_filters<Bf16, 1>);
  }
  launch_for(stream, layers, unpack_filters<float, Pack<float>::kSize>, unpack_filters<float, 1>);
}

void PackedGradients::finish(Stream& stream) { launch_unpack(native(as_cuda_stream(stream)), gradients_); }

CudaWeights::CudaWeights(const Processor& processor, const LayerSpec& spec, std::span<const Tensor> values)
    : device_(processor.device), type_(processor.type), spec_(spec), values_(values.begin(), values.end()) {
  for (const Tensor& value : values_) device_f32(value);  // throws unless they are f32 in a GPU's memory
}

PackedFilters CudaWeights::filters() const { return {layout_, type_, device_f32(values_.at(0)), packed_.data()}; }

void CudaWeights::refresh(Stream& stream) {
  LayerWeights* const layers[] = {this};
  refresh(as_cuda_stream(stream), layers);
}

void CudaWeights::refresh(CudaStream& stream, std::span<LayerWeights* const> layers) {
  std::vector<PackedFilters> filters;
  for (LayerWeights* const layer : layers) {
    CudaWeights& weights = cuda_weights(layer);
    const std::lock_guard lock(weights.mutex_);
    weights.refreshed_on_ = &stream;
    if (weights.packed_.data() != nullptr) filters.push_back(weights.filters());
  }
  use_cuda_device(stream.device());
  launch_pack(native(stream), filters);
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
      const PackedFilters mine[] = {filters()};
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

std::unique_ptr<UnfinishedGradients> CudaBackend::make_unfinished_gradients() {
  return std::make_unique<PackedGradients>();
}

void CudaBackend::refresh(Stream& stream, std::span<LayerWeights* const> layers) {
  CudaWeights::refresh(as_cuda_stream(stream), layers);
}

}  // namespace tutti::cuda
