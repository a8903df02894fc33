#include "backend/cpu/channel_kernels.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/library.hpp"
#include "backend/cpu/primitive.hpp"
#include "backend/cpu/staging.hpp"

#include <optional>

namespace tutti::cpu {
namespace {

using Forward = dnnl::pooling_forward::primitive_desc;
using Backward = dnnl::pooling_backward::primitive_desc;

struct Pool2dPlans {
  Forward forward;
  std::optional<Backward> backward;
};

Pool2dPlans plan(const dnnl::engine& engine, const Pool2dSpec& spec, const LayerRequest& request, const Shape& output) {
  const auto algorithm =
      spec.pooling == Pooling::max ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_include_padding;
  const dnnl::memory::dims strides{spec.stride, spec.stride};
  const dnnl::memory::dims window{spec.kernel, spec.kernel};
  const dnnl::memory::dims padding{spec.padding, spec.padding};
  const dnnl::memory::dims none_left_out{0, 0};
  const OnlyIn3 spacing{none_left_out};
  const Desc& input = desc_of(request.input);
  const Desc result = any(dims_of(output), type_of(input));

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

class Pool2dLayer final : public Layer {
 public:
  Pool2dLayer(const dnnl::engine& engine, const Pool2dPlans& plans, LayerMode mode, const Shape& output)
      : mode_(mode),
        output_(activation_of(output, plans.forward.dst_desc())),
        input_(engine, plans.forward.src_desc()),
        result_(engine, plans.forward.dst_desc()),
        input_gradient_(engine, plans.forward.src_desc()),
        result_gradient_(engine, plans.forward.dst_desc()),
        chosen_(plans.forward.workspace_desc(), engine),
        forward_(engine, plans.forward,
                 {{DNNL_ARG_SRC, input_.memory()}, {DNNL_ARG_DST, result_.memory()}, {DNNL_ARG_WORKSPACE, chosen_}}) {
    if (!plans.backward) return;
    backward_.emplace(engine, *plans.backward,
                      Arguments{{DNNL_ARG_DIFF_DST, result_gradient_.memory()},
                                {DNNL_ARG_DIFF_SRC, input_gradient_.memory()},
                                {DNNL_ARG_WORKSPACE, chosen_}});
  }

  const ActivationSpec& output() const override { return output_; }
  bool reads_input() const override { return false; }
  bool reads_output() const override { return false; }

  void forward(Stream& stream, const LayerForward& pass) override {
    input_.place(pass.input);
    result_.place(pass.output);
    forward_.run(cpu_stream(stream));
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(mode_, pass);
    if (!backward_) return;
    sum_output_gradients(pass, desc_of(output_));
    result_gradient_.place(pass.output_gradients[0]);
    input_gradient_.place(pass.input_gradient);
    backward_->run(cpu_stream(stream));
  }

 private:
  LayerMode mode_;
  ActivationSpec output_;
  Placed input_;
  Placed result_;
  Placed input_gradient_;
  Placed result_gradient_;
  dnnl::memory chosen_;  // which value of each window was the greatest
  Primitive forward_;
  std::optional<Primitive> backward_;
};

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const Pool2dSpec& spec, const LayerRequest& request) {
  const Shape& input = request.input.shape;
  const Shape output = output_shape(spec, input.without_first()).batch_of(input[0]);
  return check([&] { return fmt::format("making {} on {}", type_name(spec), input.text()); },
               [&] {
                 return std::make_unique<Pool2dLayer>(processor.engine, plan(processor.engine, spec, request, output),
                                                      request.mode, output);
               });
}

}  // namespace tutti::cpu
