#include "tutti/base/error.hpp"

#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/cuda/weights.hpp"
#include "filter_tiles.cuh"

#include <string>

namespace tutti::cuda {
namespace {

// The tiles of one layer.
struct FilterEntry {
  Tiles tiles;
  float* canonical;
  void* packed;
  bool in_fours;
};
using FilterTable = BlockTable<FilterEntry, 32>;
static_assert(sizeof(FilterTable) < 4000);  // the limit of kernel arguments is 4 KiB

template <class T, int kPack>
__global__ void __launch_bounds__(kTileThreads) pack_filters(const FilterTable table) {
  __shared__ float values[kSlots];
  const int layer = table.find_entry(blockIdx.x);
  const FilterEntry& entry = table.entries[layer];
  const Tile tile = tile_at(entry.tiles, static_cast<int>(blockIdx.x - table.first_blocks[layer]));
  for_each_canonical(entry.tiles, tile, entry.in_fours, [&](std::int64_t at, int first, auto count) {
    store_slots(values, first, load<decltype(count)::value>(entry.canonical, at));
  });
  __syncthreads();
  store_packed<T, kPack>(entry.tiles, tile, entry.packed, values);
}

template <class T, int kPack>
__global__ void __launch_bounds__(kTileThreads) unpack_filters(const FilterTable table) {
  __shared__ float values[kSlots];
  const int layer = table.find_entry(blockIdx.x);
  const FilterEntry& entry = table.entries[layer];
  const Tile tile = tile_at(entry.tiles, static_cast<int>(blockIdx.x - table.first_blocks[layer]));
  load_packed<T, kPack>(entry.tiles, tile, entry.packed, values);
  __syncthreads();
  for_each_canonical(entry.tiles, tile, entry.in_fours, [&](std::int64_t at, int first, auto count) {
    store(entry.canonical, at, load_slots<decltype(count)::value>(values, first));
  });
}

using FilterKernel = void (*)(FilterTable);

void launch_for(cudaStream_t stream, std::span<const PackedFilters> layers, FilterKernel in_packs,
                FilterKernel one_by_one) {
  const auto itself = [](const PackedFilters& filters) -> const PackedFilters& { return filters; };
  for_packs_and_single(layers, itself, [&](std::span<const PackedFilters> chosen, bool is_packed) {
    for_each_table<FilterTable>(chosen, [&](std::span<const PackedFilters> some) {
      FilterTable table;
      for (const PackedFilters& filters : some) {
        const Tiles tiles =
            tiles_of(filters.layout, is_packed ? static_cast<int>(kPackBytes / bytes_of(filters.type)) : 1);
        table.add({tiles, filters.canonical, filters.packed, is_aligned_to_16({filters.canonical})}, tiles.count());
      }
      launch(is_packed ? in_packs : one_by_one, {.blocks = table.blocks, .threads = kTileThreads}, stream, table);
    });
  });
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

std::vector<UnfinishedGradient> PackedGradients::list() const {
  std::vector<UnfinishedGradient> all;
  for (const PackedFilters& filters : gradients_) {
    const FilterLayout& layout = filters.layout;
    all.push_back(
        {.values = {filters.packed, Shape{layout.packed_values()}, filters.type, MemorySpace::cuda},
         .canonical = {filters.canonical, Shape{layout.canonical_values()}, ElementType::f32, MemorySpace::cuda}});
  }
  return all;
}

void PackedGradients::finish(Stream& stream) { launch_unpack(native(as_cuda_stream(stream)), gradients_); }

CudaWeights::CudaWeights(const Processor& processor, const LayerSpec& spec, std::span<const Tensor> values)
    : device_(processor.device), type_(processor.type), spec_(spec), values_(values.begin(), values.end()) {
  for (const Tensor& value : values_) device_f32(value);  // throws unless they are f32 in a GPU's memory
}

PackedFilters CudaWeights::filters() const { return {layout_, type_, device_f32(values_.at(0)), packed_.data()}; }

PackedFilters CudaWeights::filters_refreshed_on(CudaStream& stream) {
  const std::lock_guard lock(mutex_);
  refreshed_on_ = &stream;
  return filters();
}

void CudaWeights::refresh(Stream& stream) {
  LayerWeights* const layers[] = {this};
  refresh(as_cuda_stream(stream), layers);
}

void CudaWeights::refresh(CudaStream& stream, std::span<LayerWeights* const> layers) {
  std::vector<PackedFilters> filters;
  for (LayerWeights* const layer : layers) {
    const PackedFilters of_layer = cuda_weights(layer).filters_refreshed_on(stream);
    if (of_layer.packed != nullptr) filters.push_back(of_layer);
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
