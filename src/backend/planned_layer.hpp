#pragma once
// The base class of all backends' layers.

#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"
#include "tutti/base/error.hpp"

#include <utility>

namespace tutti {

class PlannedLayer : public Layer {
 public:
  const ActivationSpec& output() const final { return output_; }
  bool reads_input() const final { return reads_.input; }
  bool reads_output() const final { return reads_.output; }

 protected:
  // `reads` is backward_reads() of the spec, or less where the layer keeps what it needs.
  PlannedLayer(const LayerRequest& request, ActivationSpec output, const LayerReads& reads)
      : mode_(request.mode), output_(std::move(output)), reads_(reads) {}

  // Called first in every backward pass: throws unless the plan was made for training and there is a gradient.
  void require_training(const LayerBackward& pass) const {
    if (mode_ != LayerMode::training) throw Error(ErrorSource::internal, "backward() needs a plan made for training");
    if (pass.output_gradients.empty()) throw Error(ErrorSource::internal, "backward() needs a gradient of the output");
  }

  LayerMode mode_;
  ActivationSpec output_;

 private:
  LayerReads reads_;
};

}  // namespace tutti
