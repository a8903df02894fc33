#pragma once
// The first step of a layer's backward pass where several layers read its output: their gradients are added up.

#include "backend/cpu/format.hpp"
#include "backend/requests.hpp"

#include <vector>

namespace tutti::cpu {

// Adds to pass.output_gradients[0] all others, stored as `output` says.
void sum_output_gradients(const LayerBackward& pass, const Desc& output);

// The same gradients as numbers of the type that they are stored in.
template <class T>
std::vector<T*> gradients_of(const LayerBackward& pass) {
  std::vector<T*> gradients;
  for (void* gradient : pass.output_gradients) gradients.push_back(static_cast<T*>(gradient));
  return gradients;
}

}  // namespace tutti::cpu
