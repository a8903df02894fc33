#include "backend/cpu/finite.hpp"

#include "backend/cpu/library.hpp"
#include "backend/requests.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace tutti::cpu {
namespace {

struct Kernels {
  bool (*all_finite)(const float* values, std::int64_t count);
};

#define TUTTI_LOOPS "backend/cpu/finite_loops.inc"
#include "backend/cpu/instruction_sets.inc"
#undef TUTTI_LOOPS

}  // namespace

void find_not_finite(const NotFiniteSearch& search) {
  require_search(search);
  if (search.only_if.data != nullptr && host_i32(search.only_if)[0] == 0) return;
  const auto all_finite = for_this_processor(avx512::kKernels, avx2::kKernels, generic::kKernels).all_finite;
  const float* const values = host_f32(search.values).data();
  const std::int64_t count = search.values.elements();
  if (all_finite(values, count)) return;
  const std::span<const std::int64_t> ends = host_i64(search.ends);
  auto slice = std::ranges::upper_bound(ends, search.place);
  for (std::int64_t at = 0; at < count; ++slice) {
    const std::int64_t end = std::min(*slice - search.place, count);
    if (!all_finite(values + at, end - at)) break;
    at = end;
  }
  std::int32_t& found = host_i32(search.found)[0];
  found = std::max(found, static_cast<std::int32_t>(ends.end() - slice));
}

}  // namespace tutti::cpu
