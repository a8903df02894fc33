#include "collective_operations.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstring>
#include <utility>

namespace tutti::mpi {
namespace {

// A block of this size stays in a core's cache while it is reduced and sent.
constexpr std::int64_t kBlockElements = 16384;

SharedValues shared_values(const PeerMemory& peer_memory, const Tensor& values) {
  return is_empty(values) ? SharedValues{} : peer_memory.find(values).value();
}

// Sets the default floating-point environment, so that all threads give the same bits: compute threads may flush
// denormals to zero, a helper thread may not.
class DefaultFloatMode {
 public:
  DefaultFloatMode() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;
  ~DefaultFloatMode() { std::fesetenv(&callers_); }

 private:
  std::fenv_t callers_{};
};

template <class T>
void add_as(std::byte* to, const std::byte* from, std::size_t bytes) {
  T* const sums = reinterpret_cast<T*>(to);
  const T* const terms = reinterpret_cast<const T*>(from);
  const std::size_t elements = bytes / sizeof(T);
  for (std::size_t i = 0; i < elements; ++i) sums[i] += terms[i];
}

}  // namespace

void require_bytes(const RankBytes& other, std::size_t bytes, int rank) {
  if (other.bytes == bytes) return;
  throw Error(ErrorSource::internal,
              fmt::format("rank {} has {} bytes in an operation where rank {} expects {}: the ranks enqueued different "
                          "operations",
                          other.rank, other.bytes, rank, bytes));
}

void require_bytes(const MPI_Status& status, std::size_t bytes, int rank) {
  int count = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &count));
  require_bytes(RankBytes{status.MPI_SOURCE, static_cast<std::size_t>(count)}, bytes, rank);
}

void add(ElementType type, std::byte* to, const std::byte* from, std::size_t bytes) {
  const DefaultFloatMode mode;
  if (type == ElementType::f32) {
    add_as<float>(to, from, bytes);
  } else {
    // Unsigned, so that overflow wraps around as in MPI libraries.
    add_as<std::uint64_t>(to, from, bytes);
  }
}

DirectOperation::DirectOperation(const MpiRank& self, Reduction reduction, int tag)
    : self_(self), reduction_(std::move(reduction)), tag_(tag) {}

void DirectOperation::start() {
  if (is_empty(reduction_.values)) {
    send_results();
  } else {
    send_values();
  }
}

void DirectOperation::send_values() {
  const std::size_t bytes = subtensor(reduction_.values, reduction_.chunk_reduced_at(self_.rank)).bytes();
  received_ = std::make_unique_for_overwrite<std::byte[]>(bytes * static_cast<std::size_t>(self_.size - 1));
  for (int distance = 1; distance < self_.size; ++distance) {
    const int rank = self_.rank_after(distance);
    post_receive(rank, received_.get() + bytes * static_cast<std::size_t>(distance - 1), bytes);
    post_send(rank, subtensor(reduction_.values, reduction_.chunk_reduced_at(rank)));
  }
}

// Adds in rank order, from the next rank to this one.
void DirectOperation::add_values() {
  const Tensor own = subtensor(reduction_.values, reduction_.chunk_reduced_at(self_.rank));
  const std::size_t bytes = own.bytes();
  for (int distance = 2; distance < self_.size; ++distance) {
    add(own.type, received_.get() + bytes * static_cast<std::size_t>(distance - 1),
        received_.get() + bytes * static_cast<std::size_t>(distance - 2), bytes);
  }
  add(own.type, static_cast<std::byte*>(own.data), received_.get() + bytes * static_cast<std::size_t>(self_.size - 2),
      bytes);
  received_.reset();
}

void DirectOperation::send_results() {
  stage_ = Stage::sending_results;
  const ElementRange& own = reduction_.chunk_reduced_at(self_.rank);
  if (reduction_.transform_shard && own.elements() > 0) reduction_.transform_shard(own);
  if (is_empty(reduction_.results)) return;
  for (int distance = 1; distance < self_.size; ++distance) {
    const int rank = self_.rank_after(distance);
    const Tensor theirs = subtensor(reduction_.results, reduction_.chunk_reduced_at(rank));
    post_receive(rank, static_cast<std::byte*>(theirs.data), theirs.bytes());
    post_send(rank, subtensor(reduction_.results, own));
  }
}

void DirectOperation::post_send(int rank, const Tensor& piece) {
  if (piece.bytes() == 0) return;
  awaited_bytes_.push_back(0);
  check(MPI_Isend(piece.data, static_cast<int>(piece.bytes()), MPI_BYTE, rank, tag_, self_.comm,
                  &requests_.emplace_back(MPI_REQUEST_NULL)));
  self_.bytes_sent.fetch_add(piece.bytes(), std::memory_order_relaxed);
}

void DirectOperation::post_receive(int rank, std::byte* to, std::size_t bytes) {
  if (bytes == 0) return;
  awaited_bytes_.push_back(bytes);
  check(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, rank, tag_, self_.comm,
                  &requests_.emplace_back(MPI_REQUEST_NULL)));
}

Operation::State DirectOperation::advance() {
  for (State state = State::waiting; stage_ != Stage::done; state = State::progressed) {
    int done = 0;
    std::vector<MPI_Status> statuses(requests_.size());
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses.data()));
    if (done == 0) return state;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (awaited_bytes_[i] > 0) require_bytes(statuses[i], awaited_bytes_[i], self_.rank);
    }
    requests_.clear();
    awaited_bytes_.clear();
    if (stage_ == Stage::sending_results) {
      stage_ = Stage::done;
    } else {
      add_values();
      send_results();
    }
  }
  return State::done;
}

RingOperation::RingOperation(const MpiRank& self, Reduction reduction, int tag)
    : self_(self),
      reduction_(std::move(reduction)),
      tag_(tag),
      step_(is_empty(reduction_.values) ? self.size - 1 : 0),
      end_((is_empty(reduction_.results) ? 1 : 2) * (self.size - 1)) {}

RingOperation::Chunk RingOperation::chunk(int index) const {
  const ElementRange& range = reduction_.chunks[static_cast<std::size_t>((index + 2 * self_.size) % self_.size)];
  const Tensor piece = subtensor(adding() ? reduction_.values : reduction_.results, range);
  return {.data = static_cast<std::byte*>(piece.data), .bytes = piece.bytes()};
}

void RingOperation::start() {
  if (adding()) {
    const auto longest = std::ranges::max(reduction_.chunks, {}, &ElementRange::elements);
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(subtensor(reduction_.values, longest).bytes());
  }
  begin_step();
}

void RingOperation::begin_step() {
  if (step_ == self_.size - 1) {
    scratch_.reset();
    const ElementRange& whole = reduction_.chunk_reduced_at(self_.rank);
    if (reduction_.transform_shard && whole.elements() > 0) reduction_.transform_shard(whole);
  }
  if (step_ < end_) post();
}

void RingOperation::post() {
  const Chunk in = incoming();
  const Chunk out = outgoing();
  const int next = self_.rank_after(1);
  const int previous = self_.rank_after(self_.size - 1);
  received_ = false;
  if (in.bytes > 0) {
    check(MPI_Irecv(adding() ? scratch_.get() : in.data, static_cast<int>(in.bytes), MPI_BYTE, previous, tag_,
                    self_.comm, &receiving_));
  }
  if (out.bytes > 0) {
    check(MPI_Isend(out.data, static_cast<int>(out.bytes), MPI_BYTE, next, tag_, self_.comm, &sending_));
    self_.bytes_sent.fetch_add(out.bytes, std::memory_order_relaxed);
  }
}

Operation::State RingOperation::advance() {
  State state = State::waiting;
  while (step_ < end_) {
    if (!step_is_done()) return state;
    state = State::progressed;
    ++step_;
    begin_step();
  }
  return State::done;
}

bool RingOperation::step_is_done() {
  int done = 0;
  if (!received_) {
    MPI_Status status;
    check(MPI_Test(&receiving_, &done, &status));
    if (done == 0) return false;
    on_received(status);
    received_ = true;
  }
  check(MPI_Test(&sending_, &done, MPI_STATUS_IGNORE));
  return done != 0;
}

void RingOperation::on_received(const MPI_Status& status) {
  const Chunk in = incoming();
  if (in.bytes == 0) return;
  require_bytes(status, in.bytes, self_.rank);
  if (adding()) add(reduction_.values.type, in.data, scratch_.get(), in.bytes);
}

RootOperation::RootOperation(const MpiRank& self, const Tensor& values, RootDirection direction, int tag)
    : self_(self),
      values_(values),
      direction_(direction),
      tag_(tag),
      peer_(first() ? 1 : 0),
      last_peer_(first() ? self.size - 1 : 0) {}

void RootOperation::start() {
  if (first() && receiving()) scratch_ = std::make_unique_for_overwrite<std::byte[]>(values_.bytes());
  post();
}

void RootOperation::post() {
  const auto bytes = static_cast<int>(values_.bytes());
  if (receiving()) {
    void* const to = first() ? scratch_.get() : values_.data;
    check(MPI_Irecv(to, bytes, MPI_BYTE, peer_, tag_, self_.comm, &request_));
  } else {
    check(MPI_Isend(values_.data, bytes, MPI_BYTE, peer_, tag_, self_.comm, &request_));
    self_.bytes_sent.fetch_add(values_.bytes(), std::memory_order_relaxed);
  }
}

Operation::State RootOperation::advance() {
  for (State state = State::waiting;; state = State::progressed) {
    int done = 0;
    MPI_Status status;
    check(MPI_Test(&request_, &done, &status));
    if (done == 0) return state;
    if (receiving()) on_received(status);
    if (peer_ == last_peer_) return State::done;
    ++peer_;
    post();
  }
}

void RootOperation::on_received(const MPI_Status& status) {
  require_bytes(status, values_.bytes(), self_.rank);
  if (first()) add(values_.type, static_cast<std::byte*>(values_.data), scratch_.get(), values_.bytes());
}

WindowOperation::WindowOperation(PeerMemory& peer_memory, const MpiRank& self, std::vector<Reduction> pieces,
                                 std::uint64_t number)
    : peer_memory_(peer_memory), self_(self), pieces_(std::move(pieces)), number_(number) {}

void WindowOperation::start() {
  OperationSlot& slot = peer_memory_.own_slot(number_);
  slot.published = {shared_values(peer_memory_, pieces_.front().values),
                    shared_values(peer_memory_, pieces_.front().results)};
  slot.ready.store(number_, std::memory_order_release);
}

Operation::State WindowOperation::advance() {
  if (next_piece_ < pieces_.size()) {
    if (values_.empty()) {
      if (!all_ranks_reached(&OperationSlot::ready)) return State::waiting;
      look_up_memory();
    }
    run_piece(pieces_[next_piece_++]);
    if (next_piece_ < pieces_.size()) return State::progressed;
    peer_memory_.own_slot(number_).done.store(number_, std::memory_order_release);
    seen_ = 0;
    return all_ranks_reached(&OperationSlot::done) ? State::done : State::progressed;
  }
  return all_ranks_reached(&OperationSlot::done) ? State::done : State::waiting;
}

bool WindowOperation::all_ranks_reached(std::atomic<std::uint64_t> OperationSlot::*flag) {
  while (seen_ < self_.size && (peer_memory_.slot(seen_, number_).*flag).load(std::memory_order_acquire) >= number_) {
    ++seen_;
  }
  return seen_ == self_.size;
}

void WindowOperation::look_up_memory() {
  const Reduction& reduction = pieces_.front();
  const std::array<SharedValues, 2>& own = peer_memory_.own_slot(number_).published;
  for (int rank = 0; rank < self_.size; ++rank) {
    const std::array<SharedValues, 2>& published = peer_memory_.slot(rank, number_).published;
    for (std::size_t i = 0; i < own.size(); ++i)
      require_bytes(RankBytes{rank, published[i].bytes}, own[i].bytes, self_.rank);
    const auto in_memory = [&](const Tensor& tensor, const SharedValues& theirs) {
      if (rank == self_.rank || is_empty(tensor)) return static_cast<std::byte*>(tensor.data);
      return peer_memory_.map(rank, theirs);
    };
    values_.push_back(in_memory(reduction.values, published[0]));
    results_.push_back(in_memory(reduction.results, published[1]));
  }
  if (self_.size > 2)
    partial_sums_ = std::make_unique_for_overwrite<std::byte[]>(kBlockElements * sizeof(std::int64_t));
}

void WindowOperation::run_piece(const Reduction& piece) {
  const ElementRange& own = piece.chunk_reduced_at(self_.rank);
  const bool at_once = !piece.transform_shard;
  for (std::int64_t begin = own.begin; begin < own.end; begin += kBlockElements) {
    const ElementRange block{begin, std::min(begin + kBlockElements, own.end)};
    if (!is_empty(piece.values)) add_values(block);
    if (at_once && !is_empty(piece.results)) send_results(block);
  }
  if (!at_once && own.elements() > 0) {
    piece.transform_shard(own);
    if (!is_empty(piece.results)) send_results(own);
  }
  count_bytes(piece);
}

// Adds in rank order, from the next rank to this one.
void WindowOperation::add_values(const ElementRange& range) {
  const Tensor own = subtensor(pieces_.front().values, range);
  const std::size_t bytes = own.bytes();
  const auto offset = static_cast<std::size_t>(range.begin) * bytes_of(own.type);
  const auto values_of = [&](int distance) {
    return values_[static_cast<std::size_t>(self_.rank_after(distance))] + offset;
  };
  const std::byte* sum = values_of(1);
  for (int distance = 2; distance < self_.size; ++distance) {
    if (distance == 2) std::memcpy(partial_sums_.get(), sum, bytes);
    sum = partial_sums_.get();
    add(own.type, partial_sums_.get(), values_of(distance), bytes);
  }
  add(own.type, static_cast<std::byte*>(own.data), sum, bytes);
}

void WindowOperation::send_results(const ElementRange& range) {
  const Tensor own = subtensor(pieces_.front().results, range);
  const auto offset = static_cast<std::size_t>(range.begin) * bytes_of(own.type);
  for (int distance = 1; distance < self_.size; ++distance) {
    std::memcpy(results_[static_cast<std::size_t>(self_.rank_after(distance))] + offset, own.data, own.bytes());
  }
}

// Counts the bytes that others read from this rank's memory and those that it writes into theirs.
void WindowOperation::count_bytes(const Reduction& piece) {
  const std::int64_t own = piece.chunk_reduced_at(self_.rank).elements();
  std::int64_t all = 0;
  for (const ElementRange& chunk : piece.chunks) all += chunk.elements();
  std::size_t bytes = 0;
  if (!is_empty(piece.values)) bytes += static_cast<std::size_t>(all - own) * bytes_of(piece.values.type);
  if (!is_empty(piece.results)) {
    bytes += static_cast<std::size_t>(own * (self_.size - 1)) * bytes_of(piece.results.type);
  }
  self_.bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace tutti::mpi
