#include "backend/cuda/profiler_range.hpp"

#include <nvtx3/nvToolsExt.h>

namespace tutti::cuda {

// What the calls return is how deep ranges nest, or that no profiler looks.
void ProfilerRange::begin(const char* name) {
  end();
  static_cast<void>(nvtxRangePushA(name));
  open_ = true;
}

void ProfilerRange::end() {
  if (open_) static_cast<void>(nvtxRangePop());
  open_ = false;
}

}  // namespace tutti::cuda
