#include "backend/planned_layer.hpp"

#include "tutti/base/error.hpp"

namespace tutti {

void PlannedLayer::require_training(const LayerBackward& pass) const {
  if (mode_ != LayerMode::training) throw Error(ErrorSource::internal, "backward() needs a plan made for training");
  if (pass.output_gradients.empty()) throw Error(ErrorSource::internal, "backward() needs a gradient of the output");
}

}  // namespace tutti
