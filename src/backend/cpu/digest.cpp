#include "backend/cpu/digest.hpp"

#include "tutti/base/digest.hpp"

#include "backend/cpu/library.hpp"
#include "backend/requests.hpp"

#include <cstring>

namespace tutti::cpu {
namespace {

struct Digesting {
  const void* values;
  std::int64_t count;
  std::uint64_t start;
};

struct Kernels {
  std::uint64_t (*words)(Digesting);  // of 32 bits
  std::uint64_t (*longs)(Digesting);
};

#define TUTTI_LOOPS "backend/cpu/digest_loops.inc"
#include "backend/cpu/instruction_sets.inc"
#undef TUTTI_LOOPS

}  // namespace

void add_digests(std::span<const DigestedTensor> tensors, const Tensor& digests) {
  require_digests(tensors, digests, MemorySpace::host);
  const Kernels& kernels = for_this_processor(avx512::kKernels, avx2::kKernels, generic::kKernels);
  std::int64_t* digest = host_i64(digests).data();
  for (const auto& [values, start] : tensors) {
    const auto sum = bytes_of(values.type) == sizeof(std::uint32_t) ? kernels.words : kernels.longs;
    const std::uint64_t more = sum({values.data, values.elements(), start});
    *digest = static_cast<std::int64_t>(static_cast<std::uint64_t>(*digest) + more);
    ++digest;
  }
}

}  // namespace tutti::cpu
