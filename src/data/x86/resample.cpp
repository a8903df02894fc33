#include "resampling.hpp"

namespace tutti::resampling {
namespace {

[[gnu::target("avx2")]] void resample_avx2(const Resampling& from) { resample_all(from); }
void resample_portably(const Resampling& from) { resample_all(from); }

}  // namespace

void resample(const Resampling& from) {
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  (has_avx2 ? resample_avx2 : resample_portably)(from);
}

}  // namespace tutti::resampling
