// The update that reads unfinished gradients and writes packed filters gives the bits of the three passes it replaces:
// finish, steps, refresh.

#include "tutti/backend/cuda_library.hpp"

#include "backend/cuda/runtime.hpp"
#include "backend/cuda/weights.hpp"
#include "standin/control.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

namespace tutti {
namespace {

using cuda::CudaWeights;
using cuda::FilterLayout;
using cuda::PackedFilters;
using cuda::PackedGradients;

struct Case {
  std::string name;
  ElementType type;
  bool adamw;
  bool velocity = true;
  bool nesterov = false;
};

void PrintTo(const Case& given, std::ostream* out) { *out << given.name; }

struct Filters {
  LayerSpec spec;
  Shape sample;
  FilterLayout layout;
  std::int64_t offset;  // in the block
};

// Convolutions with all their channels, with padded ones, of groups, and a dense layer over many positions; biases and
// gaps lie between their filters.
std::vector<Filters> all_filters(ElementType type) {
  const auto padded = [&](std::int64_t channels) { return cuda::padded_channels(channels, type); };
  const auto convolution = [&](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    return Filters{Conv2dSpec{.channels = out, .kernel = kernel, .bias = false},
                   Shape{in, 9, 9},
                   {.outputs = out,
                    .channels = in,
                    .positions = kernel * kernel,
                    .padded_outputs = padded(out),
                    .padded_channels = padded(in)},
                   0};
  };
  std::vector<Filters> all{convolution(64, 32, 3), convolution(3, 5, 3), convolution(520, 3, 3), convolution(8, 16, 1)};
  all.push_back({Conv2dSpec{.channels = 6, .kernel = 3, .bias = false, .groups = 6},
                 Shape{6, 9, 9},
                 {.outputs = 6, .channels = 1, .positions = 9, .padded_outputs = padded(6), .padded_channels = 1},
                 0});
  all.push_back(
      {LinearSpec{.units = 4, .bias = false},
       Shape{5, 40, 30},
       {.outputs = 4, .channels = 5, .positions = 1200, .padded_outputs = padded(4), .padded_channels = padded(5)},
       0});
  std::int64_t offset = 0;
  for (Filters& each : all) {
    each.offset = offset;
    offset += each.layout.canonical_values() + 7;  // so that some are not aligned
  }
  return all;
}

std::vector<float> values(std::int64_t count, float scale) {
  std::vector<float> all(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = scale * std::sin(static_cast<float>((i * 2654435761U) % 100003U));
  }
  return all;
}

class Update : public testing::TestWithParam<Case> {
 protected:
  // The blocks after the steps, and the packed filters.
  std::vector<std::uint8_t> after_update(bool at_once) {
    const Case& given = GetParam();
    const bool is_bf16 = given.type == ElementType::bf16;
    const auto backend = tutti_cuda_library().make_backend(
        {.precision = is_bf16 ? Precision::bf16 : Precision::fp32, .search_plans = false});
    const auto stream = backend->make_stream();
    const std::vector<Filters> filters = all_filters(given.type);
    const std::int64_t elements = filters.back().offset + filters.back().layout.canonical_values() + 9;
    const auto block = [&](float scale) {
      Buffer memory = backend->allocate(static_cast<std::size_t>(elements) * sizeof(float));
      std::vector<float> on_host = values(elements, scale);
      const Tensor tensor = memory.view(Shape{elements}, ElementType::f32);
      backend->copy(*stream, tensor, {on_host.data(), tensor.shape, ElementType::f32, MemorySpace::host});
      stream->synchronize();
      return memory;
    };
    const Buffer weights = block(1);
    const Buffer gradients = block(0.5F);
    const Buffer first = block(0.25F);
    std::vector<float> squares = values(elements, 0.1F);
    for (float& each : squares) each *= each;
    const Buffer second = block(0);
    backend->copy(*stream, second.view(Shape{elements}, ElementType::f32),
                  {squares.data(), Shape{elements}, ElementType::f32, MemorySpace::host});

    PackedGradients unfinished;
    std::vector<std::unique_ptr<LayerWeights>> layers;
    std::vector<Buffer> packed_gradients;
    std::vector<LayerWeights*> all_layers;
    std::vector<Tensor> packed_weights;
    float scale = 1;
    for (const Filters& each : filters) {
      const Tensor tensor = part(weights, each.offset, each.layout.canonical_values());
      layers.push_back(backend->make_weights(each.spec, {&tensor, 1}));
      all_layers.push_back(layers.back().get());
      void* const packed = dynamic_cast<CudaWeights&>(*layers.back()).packed(each.layout);
      const Shape shape{each.layout.packed_values()};
      packed_weights.push_back({packed, shape, given.type, MemorySpace::cuda});
      // A gradient that is left by a layer: the filters of some values.
      packed_gradients.push_back(
          backend->allocate(static_cast<std::size_t>(each.layout.packed_values()) * bytes_of(given.type)));
      const Buffer other = block(scale += 0.1F);
      const PackedFilters of_other{each.layout, given.type, static_cast<float*>(part(other, each.offset, 1).data),
                                   packed_gradients.back().data()};
      cuda::launch_pack(native(*stream), {&of_other, 1});
      stream->synchronize();
      unfinished.add({each.layout, given.type, static_cast<float*>(part(gradients, each.offset, 1).data),
                      packed_gradients.back().data()});
    }
    backend->refresh(*stream, all_layers);

    // Two steps: the border is within a gap. What is behind the second is updated by none.
    const std::int64_t border = filters[2].offset - 3;
    const std::int64_t end = filters.back().offset + filters.back().layout.canonical_values() + 4;
    for (int time = 0; time < 2; ++time) {
      std::vector<SgdStep> sgd;
      std::vector<AdamWStep> adamw;
      for (const auto& [begin, size] : {std::pair{std::int64_t{0}, border}, std::pair{border, end - border}}) {
        sgd.push_back({.weights = part(weights, begin, size),
                       .gradients = part(gradients, begin, size),
                       .velocity = given.velocity ? part(first, begin, size) : Tensor{},
                       .learning_rate = begin == 0 ? 0.1F : 0.3F,
                       .momentum = given.velocity ? 0.9F : 0,
                       .weight_decay = begin == 0 ? 0 : 0.01F,
                       .nesterov = given.nesterov});
        adamw.push_back({.weights = part(weights, begin, size),
                         .gradients = part(gradients, begin, size),
                         .first_moment = part(first, begin, size),
                         .second_moment = part(second, begin, size),
                         .learning_rate = begin == 0 ? 0.1 : 0.3,
                         .weight_decay = 0.01,
                         .step = 3});
      }
      const UnfinishedUpdate update{unfinished, all_layers};
      if (given.adamw) {
        at_once ? backend->update(*stream, update, std::span<const AdamWStep>(adamw))
                : backend->Backend::update(*stream, update, std::span<const AdamWStep>(adamw));
      } else {
        at_once ? backend->update(*stream, update, std::span<const SgdStep>(sgd))
                : backend->Backend::update(*stream, update, std::span<const SgdStep>(sgd));
      }
    }
    std::vector<std::uint8_t> bytes;
    for (const Buffer* const memory : {&weights, &first, &second})
      append(*backend, *stream, part(*memory, 0, elements), bytes);
    for (const Tensor& packed : packed_weights) append(*backend, *stream, packed, bytes);
    return bytes;
  }

 private:
  static cudaStream_t native(Stream& stream) { return cuda::native(as_cuda_stream(stream)); }
  static Tensor part(const Buffer& memory, std::int64_t begin, std::int64_t size) {
    return {static_cast<float*>(memory.data()) + begin, Shape{size}, ElementType::f32, MemorySpace::cuda};
  }
  static void append(Backend& backend, Stream& stream, const Tensor& tensor, std::vector<std::uint8_t>& bytes) {
    std::vector<std::uint8_t> more(tensor.bytes());
    backend.copy(stream, {more.data(), tensor.shape, tensor.type, MemorySpace::host}, tensor);
    stream.synchronize();
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
};

INSTANTIATE_TEST_SUITE_P(OfFilters, Update,
                         testing::Values(Case{"sgd_bf16", ElementType::bf16, false},
                                         Case{"sgd_fp32", ElementType::f32, false},
                                         Case{"sgd_without_momentum", ElementType::bf16, false, false},
                                         Case{"nesterov", ElementType::bf16, false, true, true},
                                         Case{"adamw_bf16", ElementType::bf16, true},
                                         Case{"adamw_fp32", ElementType::f32, true}),
                         [](const auto& given) { return given.param.name; });

TEST_P(Update, AtOnceGivesTheBitsOfThreePasses) {
  const std::vector<std::uint8_t> expected = after_update(false);
  const auto launches = [] {
    const standin::Counts work = standin::enqueued_so_far().work;
    const auto is_update = [](const auto& kind) { return kind.first.starts_with("BlockTable<UpdateEntry<"); };
    return std::ranges::count_if(work, is_update);
  };
  EXPECT_EQ(after_update(true), expected);
  EXPECT_GT(launches(), 0);
}

}  // namespace
}  // namespace tutti
