#include "state_arrays.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

const NamedArray& array_of(const ParameterSlice& slice, const std::string& prefix,
                           const std::vector<NamedArray>& arrays) {
  const std::string name = prefix + slice.name;
  const auto array = std::ranges::find(arrays, name, &NamedArray::name);
  if (array == arrays.end()) {
    throw Error(ErrorSource::checkpoint, fmt::format("the checkpoint does not contain {}", name));
  }
  if (array->shape != slice.shape) {
    throw Error(ErrorSource::checkpoint, fmt::format("{} is {} in the checkpoint, but {} in this model", name,
                                                     array->shape.text(), slice.shape.text()));
  }
  return *array;
}

// A tensor for reading, though its pointer is writable.
Tensor values_of(const NamedArray& array) {
  return {const_cast<float*>(array.values.data()), array.shape, ElementType::f32, MemorySpace::host};
}

std::string_view layer_of(std::string_view name) { return name.substr(0, name.rfind('/')); }

std::string prefix_of(const OptimizerSlot& slot) { return slot.name + "/"; }

std::map<std::string_view, const NamedArray*> weights_by_name(const TrainState& state) {
  std::map<std::string_view, const NamedArray*> by_name;
  for (const auto* arrays : {&state.parameters, &state.statistics}) {
    for (const NamedArray& array : *arrays) by_name.emplace(array.name, &array);
  }
  return by_name;
}

}  // namespace

ShardSelector::ShardSelector(const std::optional<FileShard>& shard, const ParameterLayout& layout,
                             const Optimizer& optimizer, bool has_averages)
    : shard_(shard), elements_(layout.parameters() * (1 + std::ssize(optimizer.slots()))) {
  for (const ParameterSlice& slice : layout.statistics()) elements_ += slice.elements();
  if (!has_averages) return;
  for (const ParameterSlice& slice : layout.slices()) elements_ += slice.elements();
}

std::vector<ParameterSlice> ShardSelector::select_next(std::span<const ParameterSlice> next) {
  std::vector<ParameterSlice> taken;
  for (const ParameterSlice& slice : next) {
    // An array belongs to the file that contains its midpoint.
    const std::int64_t twice_the_middle = 2 * passed_ + slice.elements();
    passed_ += slice.elements();
    if (shard_ && twice_the_middle * shard_->files / (2 * elements_) == shard_->file) taken.push_back(slice);
  }
  return taken;
}

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

void fill_slices(Backend& backend, Stream& stream, const Tensor& block, std::span<const ParameterSlice> slices,
                 const std::vector<NamedArray>& arrays) {
  for (const ParameterSlice& slice : slices) {
    backend.copy(stream, slice_of(block, slice), values_of(array_of(slice, "", arrays)));
  }
  stream.synchronize();
}

void fill_weights(Backend& backend, Stream& stream, const Tensor& block, const ParameterLayout& layout,
                  const TrainState& state) {
  fill_slices(backend, stream, block, layout.trained(), state.parameters);
  fill_slices(backend, stream, block, layout.statistics(), state.statistics);
}

std::vector<std::string> except_head(const ParameterLayout& layout, const TrainState& state, bool new_head) {
  const auto refuse = [](std::string_view name, const std::string& theirs, const std::string& ours) {
    throw Error(ErrorSource::input, fmt::format("{} is {} in the checkpoint, but {} in this model: give the model that "
                                                "was trained; only its last layer may differ",
                                                name, theirs, ours));
  };
  auto unused = weights_by_name(state);
  const auto& slices = layout.slices();
  std::vector<std::string> left;
  bool other_head = new_head;
  for (const ParameterSlice& slice : slices) {
    const auto found = unused.extract(slice.name);
    const NamedArray* const array = found ? found.mapped() : nullptr;
    const bool is_head = layer_of(slice.name) == layer_of(slices.front().name);
    if (array != nullptr && array->shape == slice.shape && !(is_head && new_head)) continue;
    if (!is_head) refuse(slice.name, array == nullptr ? "missing" : array->shape.text(), slice.shape.text());
    left.push_back(slice.name);
    other_head = other_head || array == nullptr;
  }
  for (const auto& [name, array] : unused) {
    if (other_head && layer_of(name) == layer_of(unused.begin()->first)) continue;
    refuse(name, array->shape.text(), "missing");
  }
  return left;
}

std::vector<std::string> fill_except_head(Backend& backend, Stream& stream, const ParameterArena& arena,
                                          const TrainState& state, bool new_head) {
  std::vector<std::string> left = except_head(arena.layout(), state, new_head);
  const auto arrays = weights_by_name(state);
  for (const ParameterSlice& slice : arena.layout().slices()) {
    if (std::ranges::count(left, slice.name) > 0) continue;
    backend.copy(stream, slice_of(arena.weights(), slice), values_of(*arrays.at(slice.name)));
  }
  stream.synchronize();
  return left;
}

std::vector<NamedArray> gather_state(const OptimizerContext& context, Stream& stream, const Optimizer& optimizer,
                                     ShardSelector& selector, const Tensor& block) {
  const bool is_shared = context.ownership.owners() != Owners::all;
  std::vector<NamedArray> state;
  for (const OptimizerSlot& slot : optimizer.slots()) {
    if (is_shared) {
      for (const OwnedPiece& piece : context.ownership.pieces_of(ranges_of(context.layout.trained()))) {
        context.backend.copy(stream, elements_of(block, piece.elements), elements_of(slot.block, piece.packed));
      }
      gather_owned(context.communicator, context.ownership, block, stream);
    }
    auto arrays = arrays_of(context.backend, stream, is_shared ? block : slot.block,
                            selector.select_next(context.layout.trained()), prefix_of(slot));
    std::ranges::move(arrays, std::back_inserter(state));
  }
  return state;
}

void restore_state(const OptimizerContext& context, Stream& stream, const Optimizer& optimizer,
                   const std::vector<NamedArray>& state) {
  const auto slices = context.layout.trained();
  for (const OptimizerSlot& slot : optimizer.slots()) {
    std::vector<Tensor> values;
    for (const ParameterSlice& slice : slices) values.push_back(values_of(array_of(slice, prefix_of(slot), state)));
    for (const OwnedPiece& piece : context.ownership.pieces_of(ranges_of(slices))) {
      const std::int64_t begin = piece.elements.begin - slices[piece.range].offset;
      context.backend.copy(stream, elements_of(slot.block, piece.packed),
                           elements_of(values[piece.range], {begin, begin + piece.elements.size()}));
    }
  }
  stream.synchronize();
}

}  // namespace tutti
