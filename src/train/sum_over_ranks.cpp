#include "sum_over_ranks.hpp"

#include <cstdint>

namespace tutti {
namespace {

using Figures = LossSums::Figures;
const Shape kFiguresShape{LossSums::kFigures};

Tensor host_view(Figures& figures) { return {figures.data(), kFiguresShape, ElementType::i64, MemorySpace::host}; }

}  // namespace

SumOverRanks::SumOverRanks(Backend& backend, Communicator& communicator, RankStatus& rank_status)
    : backend_(backend),
      communicator_(communicator),
      rank_status_(rank_status),
      exchanged_(communicator.allocate(sizeof(Figures))) {}

LossSums SumOverRanks::operator()(Stream& stream, const LossSums& mine) {
  const Tensor exchanged = exchanged_.view(kFiguresShape, ElementType::i64);
  write_sums(backend_, stream, exchanged, mine);
  return rank_status_.wait_for_ranks([&] {
    communicator_.all_reduce(exchanged, stream);
    communicator_.finish(stream);
    return read_sums(backend_, stream, exchanged);
  });
}

std::uint64_t sum_over_ranks(Backend& backend, Communicator& communicator, Stream& stream, std::uint64_t mine) {
  const Buffer memory = communicator.allocate(sizeof mine);
  const Tensor sum = memory.view(Shape{1}, ElementType::i64);
  const Tensor host{&mine, sum.shape, ElementType::i64, MemorySpace::host};
  backend.copy(stream, sum, host);
  communicator.all_reduce(sum, stream);
  communicator.finish(stream);
  backend.copy(stream, host, sum);
  stream.synchronize();
  return mine;
}

LossSums read_sums(Backend& backend, Stream& stream, const Tensor& sums) {
  Figures figures{};
  backend.copy(stream, host_view(figures), sums);
  stream.synchronize();
  return LossSums::from(figures);
}

void write_sums(Backend& backend, Stream& stream, const Tensor& sums, const LossSums& values) {
  Figures figures = values.figures();
  backend.copy(stream, sums, host_view(figures));
  stream.synchronize();
}

}  // namespace tutti
