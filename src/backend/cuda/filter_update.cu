// Updates of the optimizers that read gradients as the layers left them and write packed filters, in one pass over the
// memory. Per element they compute what unpacking, a step over flat memory and packing do.

#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "filter_tiles.cuh"
#include "optimizer_elements.cuh"

#include <algorithm>
#include <vector>

namespace tutti::cuda {
namespace {

// The filters of one layer. The elements are its canonical ones, of which the gradients are not read.
template <class Work>
struct UpdateEntry {
  Tiles tiles;
  Work work;
  const void* gradients;
  void* packed;
  bool in_fours;
};
template <class Work>
using UpdateTable = BlockTable<UpdateEntry<Work>, 16>;

template <class Work, class T, int kPack>
__global__ void __launch_bounds__(kTileThreads) update_filters(const UpdateTable<Work> table) {
  __shared__ float values[kSlots];
  const int layer = table.find_entry(blockIdx.x);
  const UpdateEntry<Work>& entry = table.entries[layer];
  const Work work = with_numbers(entry.work);
  const Tile tile = tile_at(entry.tiles, static_cast<int>(blockIdx.x - table.first_blocks[layer]));
  load_packed<T, kPack>(entry.tiles, tile, entry.gradients, values);
  __syncthreads();
  for_each_canonical(entry.tiles, tile, entry.in_fours, [&](std::int64_t at, int first, auto count) {
    constexpr int kCount = decltype(count)::value;
    const FloatVec<kCount> weights = updated<kCount>(work, at, load_slots<kCount>(values, first));
    store(work.weights, at, weights);
    store_slots(values, first, weights);
  });
  __syncthreads();
  store_packed<T, kPack>(entry.tiles, tile, entry.packed, values);
}

// The part of a step that updates one layer's filters.
template <class Work>
struct FilterUpdate {
  Work work;
  FlatExtent extent;
  PackedFilters gradients;
  void* packed = nullptr;  // weights
};

template <class Work>
void launch_updates(cudaStream_t stream, std::span<const FilterUpdate<Work>> updates) {
  static_assert(sizeof(UpdateTable<Work>) < 4000);  // the limit of kernel arguments is 4 KiB
  const auto filters_of = [](const FilterUpdate<Work>& update) -> const PackedFilters& { return update.gradients; };
  for_packs_and_single(updates, filters_of, [&](std::span<const FilterUpdate<Work>> chosen, bool is_packed) {
    for_each_table<UpdateTable<Work>>(chosen, [&](std::span<const FilterUpdate<Work>> some) {
      UpdateTable<Work> table{};
      const bool is_bf16 = some.front().gradients.type == ElementType::bf16;
      const int pack = !is_packed ? 1 : is_bf16 ? Pack<Bf16>::kSize : Pack<float>::kSize;
      for (const FilterUpdate<Work>& each : some) {
        const Tiles tiles = tiles_of(each.gradients.layout, pack);
        table.add({tiles, each.work, each.gradients.packed, each.packed, each.extent.aligned}, tiles.count());
      }
      const Grid grid{.blocks = table.blocks, .threads = kTileThreads};
      if (is_bf16) {
        launch(is_packed ? update_filters<Work, Bf16, Pack<Bf16>::kSize> : update_filters<Work, Bf16, 1>, grid, stream,
               table);
      } else {
        launch(is_packed ? update_filters<Work, float, Pack<float>::kSize> : update_filters<Work, float, 1>, grid,
               stream, table);
      }
    });
  });
}

// The layer's packed filters, or null; the layer is then found no more.
void* take_packed(std::vector<PackedFilters>& weights, const float* canonical, const FilterLayout& layout) {
  const auto found = std::ranges::find_if(weights, [&](const PackedFilters& filters) {
    return filters.canonical == canonical && filters.layout == layout;
  });
  if (found == weights.end()) return nullptr;
  void* const packed = found->packed;
  weights.erase(found);
  return packed;
}

template <class Step>
void update_all(CudaStream& stream, const UnfinishedUpdate& update, std::span<const Step> steps) {
  using Work = decltype(elements_of_step(steps.front()));
  const auto unfinished = dynamic_cast<PackedGradients&>(update.gradients).filters();
  std::vector<PackedFilters> gradients(unfinished.begin(), unfinished.end());
  std::ranges::sort(gradients, {}, &PackedFilters::canonical);
  std::vector<PackedFilters> weights;
  for (LayerWeights* const layer : update.layers) {
    const PackedFilters filters = cuda_weights(layer).filters_refreshed_on(stream);
    if (filters.packed != nullptr) weights.push_back(filters);
  }

  std::vector<FilterUpdate<Work>> of_filters;
  std::vector<FlatEntry<Work>> of_others;
  std::vector<PackedFilters> left;  // gradients that no step covers whole
  const auto is_within = [](const PackedFilters& filters, const Work& work, std::int64_t elements) {
    return filters.canonical >= work.gradients &&
           filters.canonical + filters.layout.canonical_values() <= work.gradients + elements;
  };
  for (const Step& step : steps) {
    const Work work = elements_of_step(step);
    const std::int64_t elements = extent_of_step(step).elements;
    std::int64_t done = 0;
    const auto update_flat = [&](std::int64_t end) {
      const Work rest = from_element(work, done);
      of_others.push_back(entry_of(rest, {end - done, is_aligned(rest)}));
    };
    for (const PackedFilters& filters : gradients) {
      if (!is_within(filters, work, elements)) continue;
      const std::int64_t begin = filters.canonical - work.gradients;
      void* const packed = take_packed(weights, work.weights + begin, filters.layout);
      if (packed == nullptr) continue;
      if (begin > done) update_flat(begin);
      const Work of_layer = from_element(work, begin);
      done = begin + filters.layout.canonical_values();
      of_filters.push_back({of_layer, {done - begin, is_aligned(of_layer)}, filters, packed});
    }
    if (done < elements) update_flat(elements);
  }
  for (const PackedFilters& filters : gradients) {
    const auto is_same = [&](const FilterUpdate<Work>& each) { return each.gradients.packed == filters.packed; };
    if (std::ranges::none_of(of_filters, is_same)) left.push_back(filters);
  }
  launch_unpack(native(stream), left);
  launch_updates<Work>(native(stream), of_filters);
  launch_steps<Work>(native(stream), of_others);
  launch_pack(native(stream), weights);
}

}  // namespace

void CudaBackend::update(Stream& stream, const UnfinishedUpdate& update, std::span<const SgdStep> steps) {
  update_all(as_cuda_stream(stream), update, steps);
}

void CudaBackend::update(Stream& stream, const UnfinishedUpdate& update, std::span<const AdamWStep> steps) {
  update_all(as_cuda_stream(stream), update, steps);
}

}  // namespace tutti::cuda
