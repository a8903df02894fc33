#include "backend/cpu/channel_kernels.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/library.hpp"
#include "backend/cpu/staging.hpp"

namespace tutti::cpu {
namespace {

template <class T>
class AddLayer final : public Layer {
 public:
  AddLayer(const dnnl::engine& engine, const AddSpec& spec, const LayerRequest& request)
      : spec_(spec),
        mode_(request.mode),
        wants_input_gradient_(request.wants_input_gradient),
        output_(request.input),
        elements_(static_cast<std::int64_t>(output_.bytes / sizeof(T))),
        residual_(engine, desc_of(request.residual), desc_of(request.input)) {}

  const ActivationSpec& output() const override { return output_; }
  bool reads_input() const override { return false; }
  bool reads_output() const override { return spec_.relu; }
  bool leaves_residual_gradient() const override { return residual_.is_stored_as_wanted(); }

  void forward(Stream& stream, const LayerForward& pass) override {
    const void* residual = residual_.load(cpu_stream(stream), pass.residual);
    channel_kernels<T>().add({elements_, static_cast<const T*>(pass.input), static_cast<const T*>(residual),
                              static_cast<T*>(pass.output), spec_.relu});
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(mode_, pass);
    T* const copy = wants_input_gradient_ ? static_cast<T*>(pass.input_gradient) : nullptr;
    const T* const output = spec_.relu ? static_cast<const T*>(pass.output) : nullptr;
    channel_kernels<T>().gather({elements_, gradients_of<T>(pass), output, copy});
    residual_.deliver_gradient(cpu_stream(stream), pass.output_gradients[0], pass.residual_gradient);
  }

 private:
  AddSpec spec_;
  LayerMode mode_;
  bool wants_input_gradient_;
  ActivationSpec output_;
  std::int64_t elements_;
  Residual residual_;
};

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const AddSpec& spec, const LayerRequest& request) {
  require_residual(spec, request);
  return check([&] { return fmt::format("making add on {}", request.input.shape.text()); },
               [&] { return make_typed<AddLayer>(request, processor.engine, spec, request); });
}

}  // namespace tutti::cpu
