#include "tutti/nn/parameter_arena.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kSliceAlignment = 64 / sizeof(float);
constexpr std::int64_t kMostElements = std::int64_t{1} << 56;  // beyond any machine, and far from what 64 bits hold

}  // namespace

int ParameterLayout::add(ParameterSlice slice) {
  const std::int64_t elements = slice.elements();
  const bool trained = !is_statistic(slice.kind);
  if (trained && trained_slices_ < slices_.size()) {
    throw Error(ErrorSource::internal, fmt::format("the slice {} comes after the statistics", slice.name));
  }
  if (elements > kMostElements - block_elements_) {
    throw Error(ErrorSource::input,
                fmt::format("the network has more than {} parameters, {} with its {} among them: use smaller layers",
                            kMostElements, slice.name, slice.shape.text()));
  }
  slice.offset = block_elements_;
  slices_.push_back(std::move(slice));
  block_elements_ += (elements + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
  if (trained) {
    ++trained_slices_;
    trained_elements_ = block_elements_;
    parameters_ += elements;
  }
  return static_cast<int>(slices_.size()) - 1;
}

std::vector<std::int64_t> ParameterLayout::slice_ends() const {
  std::vector<std::int64_t> ends;
  for (std::size_t i = 1; i < slices_.size(); ++i) ends.push_back(slices_[i].offset);
  if (!slices_.empty()) ends.push_back(block_elements_);
  return ends;
}

bool matches(const std::string& pattern, const ParameterSlice& slice) {
  const std::string layer = slice.name.substr(0, slice.name.rfind('/'));
  return ::fnmatch(pattern.c_str(), slice.name.c_str(), 0) == 0 || ::fnmatch(pattern.c_str(), layer.c_str(), 0) == 0;
}

Tensor slice_of(const Tensor& block, const ParameterSlice& slice) {
  return {static_cast<float*>(block.data) + slice.offset, slice.shape, ElementType::f32, block.space};
}

// Adjacent statistics of one momentum are blended at once.
void update_statistics(Backend& backend, Stream& stream, const ParameterLayout& layout,
                       const StatisticsUpdate& update) {
  const auto slices = layout.statistics();
  for (std::size_t i = 0; i < slices.size();) {
    const ParameterSlice& slice = slices[i];
    while (i < slices.size() && slices[i].momentum == slice.momentum) ++i;
    const std::int64_t begin = std::max(update.begin, slice.offset);
    const std::int64_t end = std::min(update.end, i < slices.size() ? slices[i].offset : layout.block_elements());
    if (begin >= end) continue;
    backend.blend(stream, elements_of(update.running, {begin, end}), elements_of(update.of_step, {begin, end}),
                  static_cast<float>(slice.momentum));
  }
}

std::vector<std::vector<float>> read_slices(Backend& backend, Stream& stream, const Tensor& block,
                                            std::span<const ParameterSlice> slices) {
  std::vector<std::vector<float>> values;
  values.reserve(slices.size());
  for (const ParameterSlice& slice : slices) {
    auto& host = values.emplace_back(static_cast<std::size_t>(slice.elements()));
    backend.copy(stream, {host.data(), slice.shape, ElementType::f32, MemorySpace::host}, slice_of(block, slice));
  }
  stream.synchronize();
  return values;
}

std::uint64_t digest_of(Backend& backend, Stream& stream, std::span<const DigestedTensor> tensors) {
  const Shape shape{std::ssize(tensors)};
  std::vector<std::int64_t> digests(tensors.size());
  const Buffer memory = backend.allocate(digests.size() * sizeof(std::int64_t));
  const Tensor sums = memory.view(shape, ElementType::i64);
  backend.add_digests(stream, tensors, sums);
  backend.copy(stream, {digests.data(), shape, ElementType::i64, MemorySpace::host}, sums);
  stream.synchronize();
  return std::accumulate(digests.begin(), digests.end(), std::uint64_t{0});
}

std::uint64_t digest_of(Backend& backend, Stream& stream, const Tensor& block, std::span<const ParameterSlice> slices) {
  std::vector<DigestedTensor> tensors;
  for (const ParameterSlice& slice : slices) tensors.push_back({slice_of(block, slice), digest_start(slice.name)});
  return digest_of(backend, stream, tensors);
}

ParameterArena::ParameterArena(ParameterLayout layout, Backend& backend, Buffer gradients)
    : layout_(std::move(layout)), weights_(backend.allocate(layout_.block_bytes())), gradients_(std::move(gradients)) {
  if (gradients_.bytes() < layout_.block_bytes()) {
    throw Error(ErrorSource::internal, fmt::format("a gradient block of {} bytes for {} bytes of weights",
                                                   gradients_.bytes(), layout_.block_bytes()));
  }
}

}  // namespace tutti
