#include "backend/cpu/layer_loops.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/library.hpp"
#include "backend/cpu/primitive.hpp"
#include "backend/planned_layer.hpp"
#include "backend/requests.hpp"

#include <optional>

namespace tutti::cpu {
namespace {

using Forward = dnnl::pooling_forward::primitive_desc;
using Backward = dnnl::pooling_backward::primitive_desc;

struct Pool2dPlans {
  Forward forward;
  std::optional<Backward> backward;
};

Pool2dPlans plan(const dnnl::engine& engine, const Pool2dSpec& spec, const LayerRequest& request) {
  const auto algorithm =
      spec.pooling == Pooling::max ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_include_padding;
  const dnnl::memory::dims strides{spec.stride, spec.stride};
  const dnnl::memory::dims window{spec.kernel, spec.kernel};
  const dnnl::memory::dims padding{spec.padding, spec.padding};
  const dnnl::memory::dims none_left_out{0, 0};
  const OneDnn3Only spacing{none_left_out};
  const Desc& input = desc_of(request.input);
  const Desc result = any(dims_of(batch_output(spec, request.input.shape)), type_of(input));

  const PlanContext context{engine, attributes()};
  Pool2dPlans plans{make_plan<dnnl::pooling_forward>(context, forward_kind(request.mode), algorithm, input, result,
                                                     strides, window, spacing, padding, padding),
                    {}};
  if (request.mode == LayerMode::training && request.wants_input_gradient) {
    plans.backward = make_backward_plan<dnnl::pooling_backward>(
        context, plans.forward, algorithm, input, plans.forward.dst_desc(), strides, window, spacing, padding, padding);
  }
  return plans;
}

class Pool2dLayer final : public PlannedLayer {
 public:
  Pool2dLayer(const dnnl::engine& engine, const Pool2dPlans& plans, const Pool2dSpec& spec, const LayerRequest& request)
      : PlannedLayer(request, activation_of(batch_output(spec, request.input.shape), plans.forward.dst_desc()),
                     backward_reads(spec)),
        input_(unbound(engine, plans.forward.src_desc())),
        result_(unbound(engine, plans.forward.dst_desc())),
        input_gradient_(unbound(engine, plans.forward.src_desc())),
        result_gradient_(unbound(engine, plans.forward.dst_desc())),
        chosen_(plans.forward.workspace_desc(), engine),
        forward_(engine, plans.forward,
                 {{DNNL_ARG_SRC, input_}, {DNNL_ARG_DST, result_}, {DNNL_ARG_WORKSPACE, chosen_}}) {
    if (!plans.backward) return;
    backward_.emplace(engine, *plans.backward,
                      Arguments{{DNNL_ARG_DIFF_DST, result_gradient_},
                                {DNNL_ARG_DIFF_SRC, input_gradient_},
                                {DNNL_ARG_WORKSPACE, chosen_}});
  }

  void forward(Stream& stream, const LayerForward& pass) override {
    bind(input_, pass.input);
    bind(result_, pass.output);
    forward_.run(cpu_stream(stream));
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(pass);
    if (pass.input_gradient == nullptr) return;
    sum_output_gradients(pass, desc_of(output_));
    bind(result_gradient_, pass.output_gradients[0]);
    bind(input_gradient_, pass.input_gradient);
    backward_->run(cpu_stream(stream));
  }

 private:
  dnnl::memory input_;
  dnnl::memory result_;
  dnnl::memory input_gradient_;
  dnnl::memory result_gradient_;
  dnnl::memory chosen_;  // the index of each window's maximum
  Primitive forward_;
  std::optional<Primitive> backward_;
};

template <class T>
class GlobalAveragePoolLayer final : public PlannedLayer {
 public:
  GlobalAveragePoolLayer(const GlobalAveragePoolSpec& spec, const LayerRequest& request)
      : PlannedLayer(
            request,
            activation_of(batch_output(spec, request.input.shape), ChannelLayout(desc_of(request.input)).one_pixel()),
            backward_reads(spec)),
        layout_(desc_of(request.input)),
        sums_(static_cast<std::size_t>(layout_.period())) {}

  void forward(Stream&, const LayerForward& pass) override {
    const T* input = static_cast<const T*>(pass.input);
    T* output = static_cast<T*>(pass.output);
    for (std::int64_t block = 0; block < layout_.samples() * layout_.blocks(); ++block) {
      std::ranges::fill(sums_, 0.0);
      for (std::int64_t pixel = 0; pixel < layout_.pixels(); ++pixel) {
        for (double& sum : sums_) sum += to_float(*input++);
      }
      for (const double sum : sums_) set(*output++, static_cast<float>(sum / static_cast<double>(layout_.pixels())));
    }
  }

  void backward(Stream&, const LayerBackward& pass) override {
    require_training(pass);
    if (pass.input_gradient == nullptr) return;
    sum_output_gradients(pass, desc_of(output_));
    const T* gradient = static_cast<const T*>(pass.output_gradients[0]);
    T* input_gradient = static_cast<T*>(pass.input_gradient);
    const auto pixels = static_cast<float>(layout_.pixels());
    for (std::int64_t block = 0; block < layout_.samples() * layout_.blocks(); ++block) {
      for (std::int64_t pixel = 0; pixel < layout_.pixels(); ++pixel) {
        for (std::int64_t c = 0; c < layout_.period(); ++c) set(*input_gradient++, to_float(gradient[c]) / pixels);
      }
      gradient += layout_.period();
    }
  }

 private:
  ChannelLayout layout_;
  std::vector<double> sums_;
};

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const Pool2dSpec& spec, const LayerRequest& request) {
  return std::make_unique<Pool2dLayer>(processor.engine, plan(processor.engine, spec, request), spec, request);
}

std::unique_ptr<Layer> make(const Processor&, const GlobalAveragePoolSpec& spec, const LayerRequest& request) {
  return make_typed<GlobalAveragePoolLayer>(request, spec, request);
}

}  // namespace tutti::cpu
