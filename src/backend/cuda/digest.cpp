#include "backend/cuda/digest.hpp"

#include "backend/cuda/device_tensor.hpp"
#include "backend/cuda/digest_kernels.hpp"
#include "backend/cuda/native.hpp"
#include "backend/requirements.hpp"

#include <algorithm>

namespace tutti::cuda {
namespace {

DigestTable table_of(std::span<const DigestedTensor> tensors) {
  DigestTable table{};
  for (const auto& [values, start] : tensors) {
    table.entries[table.tensors++] = {.values = values.data,
                                      .elements = values.elements(),
                                      .start = start,
                                      .first_block = table.blocks,
                                      .is_wide = bytes_of(values.type) == sizeof(std::uint64_t),
                                      .is_aligned = reinterpret_cast<std::uintptr_t>(values.data) % 16 == 0};
    table.blocks += (values.elements() + kDigestBlock - 1) / kDigestBlock;
  }
  return table;
}

}  // namespace

void add_digests(CudaStream& stream, std::span<const DigestedTensor> tensors, const Tensor& digests) {
  require_digests(tensors, digests, MemorySpace::cuda);
  std::int64_t* of_table = device_i64(digests);
  while (!tensors.empty()) {
    const auto some = tensors.first(std::min<std::size_t>(DigestTable::kMost, tensors.size()));
    launch_digests(native(stream), table_of(some), of_table);
    of_table += some.size();
    tensors = tensors.subspan(some.size());
  }
}

}  // namespace tutti::cuda
