#include "rank_context.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti {
namespace {

Tensor on_host(std::int64_t* values, std::int64_t count) {
  return {values, Shape{count}, ElementType::i64, MemorySpace::host};
}

}  // namespace

OwnedTensor upload(Backend& backend, std::vector<std::int64_t> values) {
  OwnedTensor uploaded(backend, std::ssize(values), ElementType::i64);
  const auto stream = backend.make_stream();
  backend.copy(*stream, uploaded.values, on_host(values.data(), std::ssize(values)));
  stream->synchronize();
  return uploaded;
}

RankContext::RankContext(Backend& processor, Communicator& ranks, RankStatus& rank_status, Stream& of_thread)
    : backend(processor),
      communicator(ranks),
      status(rank_status),
      stream(of_thread),
      scratch_(ranks, std::max(ranks.size(), LossSums::kFields), ElementType::i64) {}

void RankContext::all_reduce(std::vector<std::int64_t>& values) const {
  const std::int64_t count = std::ssize(values);
  const bool fits = count <= scratch_.values.elements();
  const OwnedTensor longer = fits ? OwnedTensor() : OwnedTensor(communicator, count, ElementType::i64);
  const Tensor exchanged = elements_of(fits ? scratch_.values : longer.values, {0, count});
  backend.copy(stream, exchanged, on_host(values.data(), count));
  stream.synchronize();
  status.wait_for_ranks([&] {
    communicator.all_reduce(exchanged, stream);
    communicator.finish(stream);
    backend.copy(stream, on_host(values.data(), count), exchanged);
    stream.synchronize();
    return true;
  });
}

LossSums RankContext::all_reduce(const LossSums& mine) const {
  LossSums::Fields fields = mine.fields();
  std::vector<std::int64_t> values(fields.begin(), fields.end());
  all_reduce(values);
  std::ranges::copy(values, fields.begin());
  return LossSums::from(fields);
}

std::uint64_t RankContext::all_reduce(std::uint64_t mine) const {
  std::vector<std::int64_t> sum{static_cast<std::int64_t>(mine)};
  all_reduce(sum);
  return static_cast<std::uint64_t>(sum.front());
}

std::vector<std::int64_t> RankContext::all_gather(const std::vector<std::int64_t>& mine) const {
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(communicator.size()));
  std::ranges::copy(mine, all.begin() + std::ssize(mine) * communicator.rank());
  all_reduce(all);  // each value is added to zeros
  return all;
}

void all_gather_rows(Communicator& communicator, const Tensor& rows, Stream& stream) {
  std::vector<std::int64_t> bounds;
  const std::int64_t row = rows.elements() / communicator.size();
  for (int rank = 0; rank <= communicator.size(); ++rank) bounds.push_back(rank * row);
  // Without values to reduce, this is an all_gather.
  communicator.reduce_scatter_gather({.bounds = std::move(bounds), .results = rows}, stream);
}

LossSums read_sums(Backend& backend, Stream& stream, const Tensor& sums) {
  LossSums::Fields fields{};
  backend.copy(stream, on_host(fields.data(), LossSums::kFields), sums);
  stream.synchronize();
  return LossSums::from(fields);
}

}  // namespace tutti
