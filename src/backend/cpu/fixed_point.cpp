// Fixed-point sums, and two other operations whose result does not depend on the order or the instruction set: digests,
// and the search for non-finite values, which goes through a block slice by slice as the sums do.

#include "tutti/base/digest.hpp"

#include "backend/cpu/backend.hpp"
#include "backend/cpu/processor.hpp"
#include "backend/requests.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>

namespace tutti::cpu {
namespace {

constexpr double kSmallestNormal = 0x1p-126;  // normal number in f32

template <class Sum>
struct SumKernels {
  // Return the bits of the greatest |value|.
  std::int32_t (*set)(const float* values, Sum* sums, std::int64_t count, double scale);
  std::int32_t (*add)(const float* values, Sum* sums, std::int64_t count, double scale);
  void (*read)(const Sum* sums, float* values, std::int64_t count, double scale);
};

struct Kernels {
  SumKernels<std::int64_t> long_sums;
  SumKernels<std::int32_t> short_sums;
  std::uint64_t (*digest_words)(const void* values, std::int64_t count, std::uint64_t start);  // of 32 bits
  std::uint64_t (*digest_longs)(const void* values, std::int64_t count, std::uint64_t start);
  bool (*all_finite)(const float* values, std::int64_t count);
};

#define TUTTI_LOOPS "backend/cpu/fixed_point_loops.inc"
#include TUTTI_INSTRUCTION_SETS
#undef TUTTI_LOOPS

const Kernels& kernels() { return TUTTI_WIDEST(kKernels); }

// Calls work(slice, index of the first value, number of values) for each slice of a request.
template <class Work>
void for_each_run(const Tensor& slice_ends, std::int64_t offset, std::int64_t count, const Work& work) {
  const std::span<const std::int64_t> ends = host_i64(slice_ends);
  auto slice = static_cast<std::size_t>(std::ranges::upper_bound(ends, offset) - ends.begin());
  for (std::int64_t at = 0; at < count; ++slice) {
    const std::int64_t end = std::min(ends[slice] - offset, count);
    work(slice, at, end - at);
    at = end;
  }
}

// Calls work(kernels, sums) for the type of the sums.
template <class Work>
void with_sums(const Tensor& sums, const Work& work) {
  if (sums.type == ElementType::i32) return work(kernels().short_sums, host_i32(sums).data());
  work(kernels().long_sums, host_i64(sums).data());
}

template <class Sum>
void add_steps(const SumKernels<Sum>& steps, Sum* sums, const FixedPointGrid& grid, const ToFixedPoint& request) {
  const float* const values = host_f32(request.values).data();
  const std::span<std::int32_t> largest = host_i32(request.largest);
  const std::span<const std::int32_t> exponents = host_i32(grid.exponents);
  const auto add = request.first ? steps.set : steps.add;
  for_each_run(grid.ends, request.offset, request.values.elements(),
               [&](std::size_t slice, std::int64_t at, std::int64_t count) {
                 const std::int32_t most = add(values + at, sums + at, count, std::ldexp(1.0, exponents[slice]));
                 largest[slice] = std::max(largest[slice], most);
               });
}

template <class Sum>
void read_steps(const SumKernels<Sum>& steps, const Sum* sums, const FixedPointGrid& grid,
                const FromFixedPoint& request) {
  float* const values = host_f32(request.values).data();
  const std::span<const std::int32_t> exponents = host_i32(grid.exponents);
  for_each_run(grid.ends, request.offset, request.values.elements(),
               [&](std::size_t slice, std::int64_t at, std::int64_t count) {
                 steps.read(sums + at, values + at, count, std::ldexp(1.0, -exponents[slice]));
               });
}

}  // namespace

void CpuBackend::to_fixed_point(Stream&, const FixedPointGrid& grid, const ToFixedPoint& request) {
  require_fixed_point(grid, request);
  with_sums(request.sums, [&](const auto& steps, auto* sums) { add_steps(steps, sums, grid, request); });
}

void CpuBackend::from_fixed_point(Stream&, const FixedPointGrid& grid, const FromFixedPoint& request) {
  require_fixed_point(grid, request);
  with_sums(request.sums, [&](const auto& steps, auto* sums) { read_steps(steps, sums, grid, request); });
}

void CpuBackend::add_digests(Stream&, std::span<const DigestedTensor> tensors, const Tensor& digests) {
  require_digests(tensors, digests, MemorySpace::host);
  std::int64_t* digest = host_i64(digests).data();
  for (const auto& [values, start] : tensors) {
    const auto sum = bytes_of(values.type) == sizeof(std::uint32_t) ? kernels().digest_words : kernels().digest_longs;
    const std::uint64_t more = sum(values.data, values.elements(), start);
    *digest = static_cast<std::int64_t>(static_cast<std::uint64_t>(*digest) + more);
    ++digest;
  }
}

void CpuBackend::find_not_finite(Stream&, const NotFiniteSearch& search) {
  require_search(search);
  if (search.only_if.data != nullptr && host_i32(search.only_if)[0] == 0) return;
  const auto all_finite = kernels().all_finite;
  const float* const values = host_f32(search.values).data();
  const std::int64_t count = search.values.elements();
  if (all_finite(values, count)) return;
  std::int32_t& found = host_i32(search.found)[0];
  for_each_run(search.ends, search.offset, count, [&](std::size_t slice, std::int64_t at, std::int64_t run) {
    if (all_finite(values + at, run)) return;
    found = std::max(found, static_cast<std::int32_t>(search.ends.elements() - static_cast<std::int64_t>(slice)));
  });
}

}  // namespace tutti::cpu
