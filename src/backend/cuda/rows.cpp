#include "backend/cuda/rows.hpp"

#include <algorithm>

namespace tutti::cuda {
namespace {

constexpr int kWarp = 32;               // packs that a warp reads as one piece
constexpr std::int64_t kLeastRows = 4;  // of a thread

std::int64_t quotient_up(std::int64_t dividend, std::int64_t divisor) { return (dividend + divisor - 1) / divisor; }

}  // namespace

RowGrid share_rows(const ImageLayout& layout, ElementType type, std::int64_t most_blocks) {
  RowGrid grid;
  grid.rows = layout.rows();
  grid.packs = static_cast<int>(packs_of(layout, type));
  grid.columns = static_cast<int>(quotient_up(grid.packs, kWarp));
  grid.width = static_cast<int>(quotient_up(grid.packs, grid.columns));
  grid.height = RowGrid::kThreads / grid.width;
  const std::int64_t step = grid.height * kLeastRows;
  const std::int64_t wanted = std::max<std::int64_t>(1, most_blocks / grid.columns);
  grid.chunk_rows = quotient_up(quotient_up(grid.rows, wanted), step) * step;
  grid.chunks = static_cast<int>(quotient_up(grid.rows, grid.chunk_rows));
  return grid;
}

}  // namespace tutti::cuda
