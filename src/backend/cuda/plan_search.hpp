#pragma once
// Chooses among the plans that a library proposes for a pass of a convolution, by running them.

#include "tutti/base/timing.hpp"

#include "backend/cuda/convolution.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>

namespace tutti::cuda {

class PlanSearch {
 public:
  using Plans = std::span<const std::unique_ptr<ConvolutionPlan>>;

  // After `max_seconds`, has_time() is false: the caller is to use the first plan, so that a start takes no longer.
  PlanSearch(int device, bool uses_graphs, double max_seconds = 60);

  bool has_time() const { return seconds_ < max_seconds_; }
  // Times each plan and returns the index of the fastest. Plans that fail are left out; with `uses_graphs`, plans that
  // fail in a CUDA graph are used only if all do. Returns 0 if the device has too little free memory. The search began
  // when the library was asked for the plans, at the start of `watch`.
  std::size_t fastest(const ConvolutionShape& shape, Plans plans, const Stopwatch& watch);
  // "plan search: 33 passes of convolutions, 290 candidates of 21 engines, 1.4 s"; empty if there was none.
  std::string summary() const;

 private:
  int device_;
  bool uses_graphs_;
  double max_seconds_;
  double seconds_ = 0;
  std::int64_t passes_ = 0;
  std::int64_t candidates_ = 0;
  std::set<std::int64_t> engines_{};
};

// Writes random values in -1 .. 1: processors run faster on zeros than on real activations. Asynchronous.
void fill_with_random_values(CudaStream& stream, const Buffer& buffer, Precision precision);

}  // namespace tutti::cuda
