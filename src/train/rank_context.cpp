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

Tensor elements_of(const Tensor& block, IndexRange range) {
  auto* const first =
      static_cast<std::byte*>(block.data) + range.begin * static_cast<std::int64_t>(bytes_of(block.type));
  return {first, Shape{range.size()}, block.type, block.space};
}

Buffer upload(Backend& backend, std::vector<std::int64_t> values) {
  Buffer buffer = backend.allocate(values.size() * sizeof(std::int64_t));
  const Tensor host = on_host(values.data(), std::ssize(values));
  const auto stream = backend.make_stream();
  backend.copy(*stream, buffer.view(host.shape, host.type), host);
  stream->synchronize();
  return buffer;
}

RankContext::RankContext(Backend& processor, Communicator& ranks, RankStatus& rank_status, Stream& of_thread)
    : backend(processor),
      communicator(ranks),
      status(rank_status),
      stream(of_thread),
      scratch_(
          ranks.allocate(static_cast<std::size_t>(std::max(ranks.size(), LossSums::kFields)) * sizeof(std::int64_t))) {}

// All-reduces host values through the communicator's memory.
void RankContext::all_reduce(Tensor values) const {
  const Tensor exchanged = scratch_.view(values.shape, ElementType::i64);
  backend.copy(stream, exchanged, values);
  stream.synchronize();
  status.wait_for_ranks([&] {
    communicator.all_reduce(exchanged, stream);
    communicator.finish(stream);
    backend.copy(stream, values, exchanged);
    stream.synchronize();
    return true;
  });
}

LossSums RankContext::all_reduce(const LossSums& mine) const {
  LossSums::Fields fields = mine.fields();
  all_reduce(on_host(fields.data(), LossSums::kFields));
  return LossSums::from(fields);
}

std::uint64_t RankContext::all_reduce(std::uint64_t mine) const {
  auto sum = static_cast<std::int64_t>(mine);
  all_reduce(on_host(&sum, 1));
  return static_cast<std::uint64_t>(sum);
}

std::vector<std::int64_t> RankContext::all_gather(const std::vector<std::int64_t>& mine) const {
  const std::int64_t row = std::ssize(mine);
  const std::int64_t begin = row * communicator.rank();
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(communicator.size()));
  std::ranges::copy(mine, all.begin() + begin);
  const Buffer longer = row > 1 ? communicator.allocate(all.size() * sizeof(std::int64_t)) : Buffer();
  const Tensor rows = (row > 1 ? longer : scratch_).view(Shape{std::ssize(all)}, ElementType::i64);
  const Tensor host = on_host(all.data(), std::ssize(all));
  backend.copy(stream, elements_of(rows, {begin, begin + row}), elements_of(host, {begin, begin + row}));
  return status.wait_for_ranks([&] {
    all_gather_rows(communicator, rows, stream);
    communicator.finish(stream);
    backend.copy(stream, host, rows);
    stream.synchronize();
    return std::move(all);
  });
}

void all_gather_rows(Communicator& communicator, const Tensor& rows, Stream& stream) {
  std::vector<std::int64_t> bounds;
  const std::int64_t row = rows.elements() / communicator.size();
  for (int rank = 0; rank <= communicator.size(); ++rank) bounds.push_back(rank * row);
  communicator.reduce_scatter_gather(
      {.values = {}, .bounds = std::move(bounds), .transform_shard = {}, .results = rows}, stream);
}

LossSums read_sums(Backend& backend, Stream& stream, const Tensor& sums) {
  LossSums::Fields fields{};
  backend.copy(stream, on_host(fields.data(), LossSums::kFields), sums);
  stream.synchronize();
  return LossSums::from(fields);
}

void write_sums(Backend& backend, Stream& stream, const Tensor& sums, const LossSums& values) {
  LossSums::Fields fields = values.fields();
  backend.copy(stream, sums, on_host(fields.data(), LossSums::kFields));
  stream.synchronize();
}

}  // namespace tutti
