#include "tutti/base/random.hpp"

#include "backend/cpu/layer_loops.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/staged.hpp"
#include "backend/planned_layer.hpp"
#include "backend/requests.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tutti::cpu {
namespace {

template <class T>
class AddLayer final : public PlannedLayer {
 public:
  AddLayer(const AddSpec& spec, const LayerRequest& request)
      : PlannedLayer(request, request.input, backward_reads(spec)),
        spec_(spec),
        elements_(static_cast<std::int64_t>(output_.bytes / sizeof(T))),
        residual_(layout_of(request.residual), layout_of(request.input)) {}

  bool residual_gradient_in_place() const override { return residual_.same_layout(); }

  void forward(Stream& stream, const LayerForward& pass) override {
    const void* residual = residual_.load(cpu_stream(stream), pass.residual);
    layer_loops<T>().add({elements_, static_cast<const T*>(pass.input), static_cast<const T*>(residual),
                          static_cast<T*>(pass.output), spec_.relu});
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(pass);
    T* const copy = static_cast<T*>(pass.input_gradient);
    const T* const output = spec_.relu ? static_cast<const T*>(pass.output) : nullptr;
    layer_loops<T>().sum_gradients({elements_, typed_gradients<T>(pass), output, copy});
    residual_.deliver_gradient(cpu_stream(stream), pass.output_gradients[0], pass.residual_gradient);
  }

 private:
  AddSpec spec_;
  std::int64_t elements_;
  Staged residual_;
};

// The backward pass reads the mask of the forward pass: a factor per value, 0 or 1, in the order of memory.
template <class T>
class DropoutLayer final : public PlannedLayer {
 public:
  DropoutLayer(const DropoutSpec& spec, const LayerRequest& request)
      : PlannedLayer(request, request.input, backward_reads(spec)),
        layout_(layout_of(request.input)),
        purpose_(request.random_purpose),
        drop_below_(static_cast<std::uint64_t>(std::llrint(spec.rate * 0x1p32))),
        factor_(static_cast<float>(1 / (1 - spec.rate))) {
    if (mode_ == LayerMode::training) kept_.resize(static_cast<std::size_t>(layout_.elements()));
  }

  void set_batch_position(Stream&, const BatchPosition& place) override { place_ = place; }

  void forward(Stream&, const LayerForward& pass) override {
    if (mode_ == LayerMode::evaluation) {
      std::memcpy(pass.output, pass.input, output_.bytes);
      return;
    }
    draw();
    apply(static_cast<const T*>(pass.input), static_cast<T*>(pass.output));
  }

  void backward(Stream&, const LayerBackward& pass) override {
    require_training(pass);
    if (pass.input_gradient == nullptr) return;
    sum_output_gradients(pass, layout_of(output_));
    apply(static_cast<const T*>(pass.output_gradients[0]), static_cast<T*>(pass.input_gradient));
  }

 private:
  // Value e of a sample in C, H, W order takes word e % 4 of draw e / 4, whatever the layout.
  void draw() {
    for (std::int64_t sample = 0; sample < layout_.samples(); ++sample) {
      RandomCounter counter{
          .item = place_.first_position + static_cast<std::uint32_t>(sample), .when = place_.step, .purpose = purpose_};
      std::array<std::uint32_t, 4> words{};
      std::uint32_t element = 0;
      for (std::int64_t channel = 0; channel < layout_.channels(); ++channel) {
        for (std::int64_t pixel = 0; pixel < layout_.pixels(); ++pixel, ++element) {
          if (element % 4 == 0) {
            counter.draw = element / 4;
            words = philox(place_.seed, counter);
          }
          kept_[static_cast<std::size_t>(layout_.index_of(sample, channel, pixel))] = words[element % 4] >= drop_below_;
        }
      }
    }
  }

  // Dropped values become 0 even where they are not finite.
  void apply(const T* from, T* to) const {
    for (std::size_t i = 0; i < kept_.size(); ++i) set(to[i], kept_[i] != 0 ? to_float(from[i]) * factor_ : 0.0f);
  }

  ChannelLayout layout_;
  std::uint32_t purpose_;
  std::uint64_t drop_below_;
  float factor_;
  BatchPosition place_{};
  std::vector<std::uint8_t> kept_;
};

template <class T>
class ElementwiseLayer final : public PlannedLayer {
 public:
  ElementwiseLayer(const ElementwiseSpec& spec, const LayerRequest& request)
      : PlannedLayer(request, request.input, backward_reads(spec)), spec_(spec) {}

  void forward(Stream& stream, const LayerForward& pass) override {
    for_each_segment(stream, [&](const Segment& segment) {
      layer_loops<T>().elementwise({segment, static_cast<const T*>(pass.input), static_cast<T*>(pass.output), spec_});
    });
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(pass);
    if (pass.input_gradient == nullptr) return;
    const std::vector<T*> gradients = typed_gradients<T>(pass);
    const void* const values = reads_input() ? pass.input : reads_output() ? pass.output : nullptr;
    for_each_segment(stream, [&](const Segment& segment) {
      layer_loops<T>().elementwise_gradient(
          {segment, gradients, static_cast<const T*>(values), static_cast<T*>(pass.input_gradient), spec_});
    });
  }

 private:
  template <class Visit>
  void for_each_segment(Stream& stream, Visit visit) const {
    constexpr std::int64_t kElements = std::int64_t{1} << 16;
    const auto elements = static_cast<std::int64_t>(output_.bytes / sizeof(T));
    const auto visit_segment = [&](int task) {
      visit(Segment{task * kElements, std::min(kElements, elements - task * kElements), 1});
    };
    const auto segments = static_cast<int>((elements + kElements - 1) / kElements);
    if (segments == 1) return visit_segment(0);
    cpu_stream(stream).run(segments, visit_segment);
  }

  ElementwiseSpec spec_;
};

}  // namespace

std::unique_ptr<Layer> make(ElementType, const AddSpec& spec, const LayerRequest& request) {
  require_residual(spec, request);
  return make_typed<AddLayer>(request, spec, request);
}

std::unique_ptr<Layer> make(ElementType, const DropoutSpec& spec, const LayerRequest& request) {
  return make_typed<DropoutLayer>(request, spec, request);
}

std::unique_ptr<Layer> make(ElementType, const ElementwiseSpec& spec, const LayerRequest& request) {
  return make_typed<ElementwiseLayer>(request, spec, request);
}

}  // namespace tutti::cpu
