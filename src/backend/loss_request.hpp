#pragma once
// What every backend asks of a softmax loss that it is to make.

#include "tutti/base/shape.hpp"

namespace tutti {

// Throws an input error for logits that are not samples x classes, a usage error for smoothing outside 0 .. 1.
void require_loss(const Shape& logits, double smoothing);

}  // namespace tutti
