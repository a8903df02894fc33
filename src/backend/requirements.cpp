#include "backend/requirements.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti {

void require_residual(const LayerSpec& spec, const LayerRequest& request) {
  if (request.residual.format != nullptr && request.residual.shape == request.input.shape) return;
  throw Error(ErrorSource::input,
              fmt::format("{}: it adds an activation of {} to its input of {}, but both must have one shape; choose "
                          "channels and strides that make them equal",
                          type_name(spec), request.residual.shape.text(), request.input.shape.text()));
}

void require_training(LayerMode mode, const LayerBackward& pass) {
  if (mode != LayerMode::training) {
    throw Error(ErrorSource::internal, "a plan made for evaluation is asked for gradients");
  }
  if (pass.output_gradients.empty()) throw Error(ErrorSource::internal, "a layer is given no gradient of its output");
}

}  // namespace tutti
