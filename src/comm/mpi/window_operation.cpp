#include "window_operation.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::mpi {
namespace {

// What stays in a core's own cache while it is added up and passed on.
constexpr std::int64_t kBlockElements = 16384;

PostedValues posted(const Window& window, const Tensor& values) {
  return is_empty(values) ? PostedValues{} : window.find(values).value();
}

}  // namespace

WindowOperation::WindowOperation(Window& window, const RankPlace& place, std::vector<SumWork> pieces,
                                 std::uint64_t number)
    : window_(window), place_(place), pieces_(std::move(pieces)), number_(number) {}

void WindowOperation::start() {
  Post& post = window_.own_post(number_);
  post.given = {posted(window_, pieces_.front().values), posted(window_, pieces_.front().results)};
  post.ready.store(number_, std::memory_order_release);
}

Operation::State WindowOperation::advance() {
  if (next_piece_ < pieces_.size()) {
    if (values_.empty()) {
      if (!have_all(&Post::ready)) return State::waiting;
      look_up_memory();
    }
    work_on(pieces_[next_piece_++]);
    if (next_piece_ < pieces_.size()) return State::moved;
    window_.own_post(number_).done.store(number_, std::memory_order_release);
    seen_ = 0;
    return have_all(&Post::done) ? State::done : State::moved;
  }
  return have_all(&Post::done) ? State::done : State::waiting;
}

bool WindowOperation::have_all(std::atomic<std::uint64_t> Post::*word) {
  while (seen_ < place_.size && (window_.post(seen_, number_).*word).load(std::memory_order_acquire) >= number_) {
    ++seen_;
  }
  return seen_ == place_.size;
}

void WindowOperation::look_up_memory() {
  const SumWork& work = pieces_.front();
  const std::array<PostedValues, 2>& own = window_.own_post(number_).given;
  for (int rank = 0; rank < place_.size; ++rank) {
    const std::array<PostedValues, 2>& given = window_.post(rank, number_).given;
    for (std::size_t i = 0; i < own.size(); ++i) require_bytes(Given{rank, given[i].bytes}, own[i].bytes, place_.rank);
    const auto in_memory = [&](const Tensor& tensor, const PostedValues& theirs) {
      if (rank == place_.rank || is_empty(tensor)) return static_cast<std::byte*>(tensor.data);
      return window_.map(rank, theirs);
    };
    values_.push_back(in_memory(work.values, given[0]));
    results_.push_back(in_memory(work.results, given[1]));
  }
  if (place_.size > 2)
    partial_sums_ = std::make_unique_for_overwrite<std::byte[]>(kBlockElements * sizeof(std::int64_t));
}

void WindowOperation::work_on(const SumWork& piece) {
  const ElementRange& own = piece.ending_at(place_.rank);
  const bool at_once = !piece.then;
  for (std::int64_t begin = own.begin; begin < own.end; begin += kBlockElements) {
    const ElementRange block{begin, std::min(begin + kBlockElements, own.end)};
    if (!is_empty(piece.values)) add_up(block);
    if (at_once && !is_empty(piece.results)) pass_on(block);
  }
  if (!at_once && own.elements() > 0) {
    piece.then(own);
    if (!is_empty(piece.results)) pass_on(own);
  }
  count_bytes(piece);
}

// Sums begin at the next rank and end at this one.
void WindowOperation::add_up(const ElementRange& range) {
  const Tensor own = part_of(pieces_.front().values, range);
  const std::size_t bytes = own.bytes();
  const auto offset = static_cast<std::size_t>(range.begin) * bytes_of(own.type);
  const auto values_of = [&](int places) {
    return values_[static_cast<std::size_t>(place_.rank_after(places))] + offset;
  };
  const std::byte* sum = values_of(1);
  for (int places = 2; places < place_.size; ++places) {
    if (places == 2) std::memcpy(partial_sums_.get(), sum, bytes);
    sum = partial_sums_.get();
    add(own.type, partial_sums_.get(), values_of(places), bytes);
  }
  add(own.type, static_cast<std::byte*>(own.data), sum, bytes);
}

void WindowOperation::pass_on(const ElementRange& range) {
  const Tensor own = part_of(pieces_.front().results, range);
  const auto offset = static_cast<std::size_t>(range.begin) * bytes_of(own.type);
  for (int places = 1; places < place_.size; ++places) {
    std::memcpy(results_[static_cast<std::size_t>(place_.rank_after(places))] + offset, own.data, own.bytes());
  }
}

// What others take of this rank's values, and what it gives to them.
void WindowOperation::count_bytes(const SumWork& piece) {
  const std::int64_t own = piece.ending_at(place_.rank).elements();
  std::int64_t all = 0;
  for (const ElementRange& chunk : piece.chunks) all += chunk.elements();
  std::size_t bytes = 0;
  if (!is_empty(piece.values)) bytes += static_cast<std::size_t>(all - own) * bytes_of(piece.values.type);
  if (!is_empty(piece.results)) {
    bytes += static_cast<std::size_t>(own * (place_.size - 1)) * bytes_of(piece.results.type);
  }
  place_.bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace tutti::mpi
