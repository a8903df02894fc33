#include "state_arrays.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {

std::vector<NamedArray> arrays_of(Backend& backend, Stream& stream, const Tensor& block,
                                  std::span<const ParameterSlice> slices, const std::string& prefix) {
  auto values = read_slices(backend, stream, block, slices);
  std::vector<NamedArray> arrays;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const ParameterSlice& slice = slices[i];
    arrays.push_back({prefix + slice.name, slice.shape, std::move(values[i])});
  }
  return arrays;
}

void fill_from_arrays(Backend& backend, Stream& stream, const Tensor& block, std::span<const ParameterSlice> slices,
                      const std::string& prefix, const std::vector<NamedArray>& arrays) {
  for (const ParameterSlice& slice : slices) {
    const std::string name = prefix + slice.name;
    const auto array = std::ranges::find(arrays, name, &NamedArray::name);
    if (array == arrays.end()) {
      throw Error(ErrorSource::checkpoint, fmt::format("the checkpoint holds no {}", name));
    }
    if (array->shape != slice.shape) {
      throw Error(ErrorSource::checkpoint, fmt::format("{} is {} in the checkpoint, but {} in this model", name,
                                                       array->shape.text(), slice.shape.text()));
    }
    // The copy only reads; a tensor's pointer is writable because most tensors are.
    backend.copy(stream, slice_of(block, slice),
                 {const_cast<float*>(array->values.data()), slice.shape, ElementType::f32, MemorySpace::host});
  }
  stream.synchronize();
}

}  // namespace tutti
