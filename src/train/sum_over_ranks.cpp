#include "sum_over_ranks.hpp"

#include <array>
#include <cstdint>

namespace tutti {
namespace {

using Figures = std::array<std::int64_t, LossSums::kFigures>;
const Shape kFiguresShape{LossSums::kFigures};

Tensor host_view(Figures& figures) { return {figures.data(), kFiguresShape, ElementType::i64, MemorySpace::host}; }

}  // namespace

SumOverRanks::SumOverRanks(Backend& backend, Communicator& communicator)
    : backend_(backend), communicator_(communicator), exchanged_(communicator.allocate(sizeof(Figures))) {}

LossSums SumOverRanks::operator()(Stream& stream, const Tensor& local) {
  const Tensor exchanged = exchanged_.view(kFiguresShape, ElementType::i64);
  backend_.copy(stream, exchanged, local);
  communicator_.all_reduce_sum(exchanged, stream);
  communicator_.finish(stream);
  return read_sums(backend_, stream, exchanged);
}

LossSums read_sums(Backend& backend, Stream& stream, const Tensor& sums) {
  Figures figures{};
  backend.copy(stream, host_view(figures), sums);
  stream.synchronize();
  return {figures[0], figures[1], figures[2], figures[3]};
}

void write_sums(Backend& backend, Stream& stream, const Tensor& sums, const LossSums& values) {
  Figures figures{values.loss_steps, values.correct, values.samples, values.not_finite};
  backend.copy(stream, sums, host_view(figures));
  stream.synchronize();
}

}  // namespace tutti
