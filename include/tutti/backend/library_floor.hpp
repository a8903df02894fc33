#pragma once
// What a training step on the CPU can be held against: the library's own primitives for the layers of a network, and
// the limits of the processor. Only the time is of use, not what comes out.

#include "tutti/backend/layer_spec.hpp"
#include "tutti/backend/precision.hpp"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

struct FloorLayer {
  LayerSpec spec;
  Shape input;  // of the batch
  bool wants_input_gradient = true;
};

// Seconds of one run each; 0 where there is no such pass.
struct PrimitiveTimes {
  double forward = 0;
  double backward_data = 0;  // of layers without weights and of norms, the whole way back
  double backward_weights = 0;

  double total() const { return forward + backward_data + backward_weights; }
};

// Per second. A multiply-add counts as two operations; what is copied counts where it is read and where it is written.
struct ProcessorRates {
  double f32_operations = 0;   // on registers
  double bf16_operations = 0;  // likewise, as dot products of pairs; 0: the processor has none
  double copied_bytes = 0;     // between blocks that no cache holds
};

class LibraryFloor {
 public:
  // To be made and used in one thread, which Backend::enter_compute_thread() was called in: as many threads are
  // measured. Each layer gets the layout in which its primitives together are fastest. Convolutions are direct, a ReLU
  // is the primitive's own, and the residual that a norm may add is left out.
  LibraryFloor(Precision precision, std::span<const FloorLayer> layers);
  ~LibraryFloor();
  LibraryFloor(const LibraryFloor&) = delete;
  LibraryFloor& operator=(const LibraryFloor&) = delete;

  // By layer, each primitive's second run of two; none where the library has no primitive of that kind.
  std::vector<std::optional<PrimitiveTimes>> time_primitives();
  ProcessorRates measure_processor();

 private:
  class Measured;
  std::unique_ptr<Measured> measured_;
};

}  // namespace tutti
