#pragma once
// Filters between their canonical and their packed layout: a block transposes one tile of channels x positions of one
// output through shared memory, with adjacent accesses on both sides.

#include "backend/cuda/weights.hpp"
#include "flat.cuh"
#include "floats.cuh"

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

namespace tutti::cuda {

inline constexpr int kTileThreads = 256;
inline constexpr int kTileValues = 4608;  // one output of 3x3 filters over 512 channels

struct Tiles {
  FilterLayout layout;
  int channels;
  int positions;
  int along;       // tiles over positions
  int per_output;  // over channels, too

  std::int64_t count() const { return layout.outputs * per_output; }
};

inline Tiles tiles_of(const FilterLayout& layout, int pack) {
  const auto positions = std::min<std::int64_t>(layout.positions, kTileValues / pack);
  const auto channels = std::min<std::int64_t>(layout.padded_channels, kTileValues / positions / pack * pack);
  const auto along = static_cast<int>((layout.positions + positions - 1) / positions);
  const auto across = static_cast<int>((layout.padded_channels + channels - 1) / channels);
  return {layout, static_cast<int>(channels), static_cast<int>(positions), along, along * across};
}

// One tile and its position.
struct Tile {
  int channels;
  int positions;
  int real_channels;
  std::int64_t canonical;  // the index of its first value
  std::int64_t packed;

  // Whether it has all positions, so that its canonical values are adjacent.
  __device__ bool is_whole(const Tiles& tiles) const { return positions == tiles.layout.positions; }
};

__device__ inline Tile tile_at(const Tiles& tiles, int index) {
  const FilterLayout& layout = tiles.layout;
  const int output = index / tiles.per_output;
  const int within = index - output * tiles.per_output;
  const std::int64_t channel = within / tiles.along * tiles.channels;
  const std::int64_t position = within % tiles.along * tiles.positions;
  const auto smaller = [](std::int64_t a, std::int64_t b) { return static_cast<int>(a < b ? a : b); };
  return {smaller(tiles.channels, layout.padded_channels - channel),
          smaller(tiles.positions, layout.positions - position), smaller(tiles.channels, layout.channels - channel),
          (output * layout.channels + channel) * layout.positions + position,
          (output * layout.positions + position) * layout.padded_channels + channel};
}

// Values that lie a multiple of 32 apart are assigned to different banks.
__device__ inline int slot(int value) { return value + value / 32; }
inline constexpr int kSlots = kTileValues + kTileValues / 32;

// Calls visit(position, channel) for the first channel of each pack of the tile.
template <int kPack, class Visit>
__device__ inline void for_each_channel_pack(const Tile& tile, Visit visit) {
  const int packs = tile.channels / kPack;
  for (int i = static_cast<int>(threadIdx.x); i < tile.positions * packs; i += kTileThreads) {
    const int position = i / packs;
    visit(position, (i - position * packs) * kPack);
  }
}

// Shared memory has a tile's values in the canonical order.
template <class T, int kPack>
__device__ inline void load_packed(const Tiles& tiles, const Tile& tile, const void* packed, float* values) {
  const T* const from = static_cast<const T*>(packed) + tile.packed;
  for_each_channel_pack<kPack>(tile, [&](int position, int channel) {
    const Vec<T, kPack> pack = load<kPack>(from, position * tiles.layout.padded_channels + channel);
#pragma unroll
    for (int k = 0; k < kPack; ++k) values[slot((channel + k) * tile.positions + position)] = to_float(pack.values[k]);
  });
}

// Zeros where there are no channels.
template <class T, int kPack>
__device__ inline void store_packed(const Tiles& tiles, const Tile& tile, void* packed, const float* values) {
  T* const to = static_cast<T*>(packed) + tile.packed;
  for_each_channel_pack<kPack>(tile, [&](int position, int channel) {
    Vec<T, kPack> pack;
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const bool is_real = channel + k < tile.real_channels;
      set(pack.values[k], is_real ? values[slot((channel + k) * tile.positions + position)] : 0.0f);
    }
    store(to, position * tiles.layout.padded_channels + channel, pack);
  });
}

// Calls visit(index of the layer's canonical value, that of the tile, count) for all values of the tile; the count is a
// std::integral_constant, of 4 adjacent values if they may be read in one access (`in_fours`: of the layer's memory).
template <class Visit>
__device__ inline void for_each_canonical(const Tiles& tiles, const Tile& tile, bool in_fours, Visit visit) {
  const int count = tile.real_channels * tile.positions;
  const int thread = static_cast<int>(threadIdx.x);
  if (!tile.is_whole(tiles)) {
    for (int i = thread; i < count; i += kTileThreads) {
      const int channel = i / tile.positions;
      visit(tile.canonical + channel * tiles.layout.positions + (i - channel * tile.positions), i,
            std::integral_constant<int, 1>());
    }
  } else if (in_fours && tile.canonical % 4 == 0 && count % 4 == 0) {
    for (int i = 4 * thread; i < count; i += 4 * kTileThreads) {
      visit(tile.canonical + i, i, std::integral_constant<int, 4>());
    }
  } else {
    for (int i = thread; i < count; i += kTileThreads) visit(tile.canonical + i, i, std::integral_constant<int, 1>());
  }
}

// Adjacent values of the tile.
template <int kSize>
__device__ inline FloatVec<kSize> load_slots(const float* values, int first) {
  FloatVec<kSize> run;
#pragma unroll
  for (int k = 0; k < kSize; ++k) run.values[k] = values[slot(first + k)];
  return run;
}
template <int kSize>
__device__ inline void store_slots(float* values, int first, const FloatVec<kSize>& run) {
#pragma unroll
  for (int k = 0; k < kSize; ++k) values[slot(first + k)] = run.values[k];
}

// Calls work(chosen, true) for the items whose channels are read in packs, and work(chosen, false) for those that have
// too few in a group, whose channels are read one by one.
template <class Item, class FiltersOf, class Work>
void for_packs_and_single(std::span<const Item> items, const FiltersOf& filters_of, const Work& work) {
  std::vector<Item> in_packs;
  std::vector<Item> single;
  for (const Item& item : items) {
    const PackedFilters& filters = filters_of(item);
    const auto pack = static_cast<std::int64_t>(kPackBytes / bytes_of(filters.type));
    (filters.layout.padded_channels % pack == 0 ? in_packs : single).push_back(item);
  }
  work(std::span<const Item>(in_packs), true);
  work(std::span<const Item>(single), false);
}

}  // namespace tutti::cuda
