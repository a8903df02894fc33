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
#include <iterator>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
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

// The layers of all filters with their blocks, on a backend of their own.
class Layers {
 public:
  explicit Layers(const Case& given)
      : given_(given),
        backend_(tutti_cuda_library().make_backend(
            {.precision = given.type == ElementType::bf16 ? Precision::bf16 : Precision::fp32, .search_plans = false})),
        stream_(backend_->make_stream()),
        filters_(all_filters(given.type)),
        elements_(filters_.back().offset + filters_.back().layout.canonical_values() + 9),
        weights_(block(values(elements_, 1))),
        gradients_(block(values(elements_, 0.5F))),
        first_(block(values(elements_, 0.25F))),
        second_(block(squares_of(values(elements_, 0.1F)))) {
    float scale = 1;
    for (const Filters& each : filters_) {
      add_layer(each);
      leave_gradient(each, scale += 0.1F);
    }
    backend_->refresh(*stream_, all_layers_);
  }

  // The border of the two steps is within a gap. What is behind the second is updated by none.
  void update(bool at_once) {
    const std::int64_t border = filters_[2].offset - 3;
    const std::int64_t end = filters_.back().offset + filters_.back().layout.canonical_values() + 4;
    std::vector<SgdStep> sgd;
    std::vector<AdamWStep> adamw;
    for (const auto& [begin, size] : {std::pair{std::int64_t{0}, border}, std::pair{border, end - border}}) {
      sgd.push_back(sgd_step(begin, size));
      adamw.push_back(adamw_step(begin, size));
    }
    const UnfinishedUpdate update{unfinished_, all_layers_};
    if (given_.adamw) {
      at_once ? backend_->update(*stream_, update, std::span<const AdamWStep>(adamw))
              : backend_->Backend::update(*stream_, update, std::span<const AdamWStep>(adamw));
    } else {
      at_once ? backend_->update(*stream_, update, std::span<const SgdStep>(sgd))
              : backend_->Backend::update(*stream_, update, std::span<const SgdStep>(sgd));
    }
  }

  // Of the blocks and the packed filters.
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> bytes;
    for (const Buffer* const memory : {&weights_, &first_, &second_}) append(part(*memory, 0, elements_), bytes);
    for (const Tensor& packed : packed_weights_) append(packed, bytes);
    return bytes;
  }

 private:
  Buffer block(std::vector<float> on_host) const {
    Buffer memory = backend_->allocate(on_host.size() * sizeof(float));
    const Tensor tensor = memory.view(Shape{std::ssize(on_host)}, ElementType::f32);
    backend_->copy(*stream_, tensor, {on_host.data(), tensor.shape, ElementType::f32, MemorySpace::host});
    stream_->synchronize();
    return memory;
  }

  static std::vector<float> squares_of(std::vector<float> all) {
    for (float& each : all) each *= each;
    return all;
  }

  void add_layer(const Filters& filters) {
    const Tensor tensor = part(weights_, filters.offset, filters.layout.canonical_values());
    layers_.push_back(backend_->make_weights(filters.spec, {&tensor, 1}));
    all_layers_.push_back(layers_.back().get());
    void* const packed = dynamic_cast<CudaWeights&>(*layers_.back()).packed(filters.layout);
    packed_weights_.push_back({packed, Shape{filters.layout.packed_values()}, given_.type, MemorySpace::cuda});
  }

  // A gradient that is left by a layer: the filters of some values.
  void leave_gradient(const Filters& filters, float scale) {
    packed_gradients_.push_back(
        backend_->allocate(static_cast<std::size_t>(filters.layout.packed_values()) * bytes_of(given_.type)));
    void* const packed = packed_gradients_.back().data();
    const Buffer other = block(values(elements_, scale));
    const PackedFilters of_other{filters.layout, given_.type, at(other, filters.offset), packed};
    cuda::launch_pack(cuda::native(as_cuda_stream(*stream_)), {&of_other, 1});
    stream_->synchronize();
    unfinished_.add({filters.layout, given_.type, at(gradients_, filters.offset), packed});
  }

  SgdStep sgd_step(std::int64_t begin, std::int64_t size) const {
    return {.weights = part(weights_, begin, size),
            .gradients = part(gradients_, begin, size),
            .velocity = given_.velocity ? part(first_, begin, size) : Tensor{},
            .learning_rate = begin == 0 ? 0.1F : 0.3F,
            .momentum = given_.velocity ? 0.9F : 0,
            .weight_decay = begin == 0 ? 0 : 0.01F,
            .nesterov = given_.nesterov};
  }

  AdamWStep adamw_step(std::int64_t begin, std::int64_t size) const {
    return {.weights = part(weights_, begin, size),
            .gradients = part(gradients_, begin, size),
            .first_moment = part(first_, begin, size),
            .second_moment = part(second_, begin, size),
            .learning_rate = begin == 0 ? 0.1 : 0.3,
            .weight_decay = 0.01,
            .step = 3};
  }

  static float* at(const Buffer& memory, std::int64_t begin) { return static_cast<float*>(memory.data()) + begin; }
  static Tensor part(const Buffer& memory, std::int64_t begin, std::int64_t size) {
    return {at(memory, begin), Shape{size}, ElementType::f32, MemorySpace::cuda};
  }
  void append(const Tensor& tensor, std::vector<std::uint8_t>& bytes) const {
    std::vector<std::uint8_t> more(tensor.bytes());
    backend_->copy(*stream_, {more.data(), tensor.shape, tensor.type, MemorySpace::host}, tensor);
    stream_->synchronize();
    bytes.insert(bytes.end(), more.begin(), more.end());
  }

  Case given_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::vector<Filters> filters_;
  std::int64_t elements_;
  Buffer weights_;
  Buffer gradients_;
  Buffer first_;   // velocities, or first moments
  Buffer second_;  // moments
  std::vector<std::unique_ptr<LayerWeights>> layers_;
  std::vector<LayerWeights*> all_layers_;
  std::vector<Tensor> packed_weights_;
  std::vector<Buffer> packed_gradients_;
  PackedGradients unfinished_;
};

class Update : public testing::TestWithParam<Case> {
 protected:
  // The blocks after two steps, and the packed filters.
  static std::vector<std::uint8_t> after_update(bool at_once) {
    Layers layers(GetParam());
    for (int time = 0; time < 2; ++time) layers.update(at_once);
    return layers.bytes();
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
