#include "backend/loss_request.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti {

void require_loss(const Shape& logits, double smoothing) {
  if (logits.rank() != 2 || logits.elements() == 0) {
    throw Error(ErrorSource::input,
                fmt::format("softmax loss: its input is {}, but it needs samples x classes; end the "
                            "model with a linear layer",
                            logits.text()));
  }
  if (!(smoothing >= 0 && smoothing < 1)) {
    throw Error(ErrorSource::usage,
                fmt::format("label smoothing is {}, but must be at least 0 and below 1", smoothing));
  }
}

}  // namespace tutti
