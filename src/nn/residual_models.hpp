#pragma once
// The residual networks among the built-in ones.

#include "tutti/nn/network_spec.hpp"

namespace tutti {

// As tutorials have them for small images: a 3x3 stem without pooling, convolutions with bias, shortcuts without norm.
NetworkSpec resnet18();
NetworkSpec resnet34();
// For large images, with the parameters of torchvision's.
NetworkSpec resnet50();

}  // namespace tutti
