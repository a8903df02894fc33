#include "collective_operations.hpp"

#include "tutti/base/bf16.hpp"
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

template <class T>
void add_as(void* to, const void* from, std::size_t bytes) {
  T* const sums = static_cast<T*>(to);
  const T* const terms = static_cast<const T*>(from);
  const std::size_t elements = bytes / sizeof(T);
  for (std::size_t i = 0; i < elements; ++i) sums[i] += terms[i];
}

void add_bf16(void* to, const void* from, std::size_t bytes) {
  auto* const sums = static_cast<Bf16*>(to);
  const auto* const terms = static_cast<const Bf16*>(from);
  const std::size_t elements = bytes / sizeof(Bf16);
  for (std::size_t i = 0; i < elements; ++i) sums[i] = to_bf16(to_float(sums[i]) + to_float(terms[i]));
}

// to += from, f32, bf16, i32 or i64. In the default floating-point environment, so that all threads give the same bits:
// compute threads may flush denormals to zero, a helper thread may not.
void add(ElementType type, void* to, const void* from, std::size_t bytes) {
  std::fenv_t callers{};
  std::fegetenv(&callers);
  std::fesetenv(FE_DFL_ENV);
  if (type == ElementType::f32) {
    add_as<float>(to, from, bytes);
  } else if (type == ElementType::bf16) {
    add_bf16(to, from, bytes);
  } else if (type == ElementType::i32) {
    // Unsigned, so that overflow wraps around as in MPI libraries.
    add_as<std::uint32_t>(to, from, bytes);
  } else {
    add_as<std::uint64_t>(to, from, bytes);
  }
  std::fesetenv(&callers);
}

struct RankBytes {
  int rank;
  std::size_t bytes;
};

// Throws unless the other rank has this many bytes; otherwise the ranks enqueued different operations.
void require_bytes(const RankBytes& other, std::size_t bytes, int rank) {
  if (other.bytes == bytes) return;
  throw Error(ErrorSource::internal,
              fmt::format("rank {} has {} bytes in an operation where rank {} expects {}: the ranks enqueued different "
                          "operations",
                          other.rank, other.bytes, rank, bytes));
}

void transform_chunk(const Reduction& reduction, const IndexRange& chunk) {
  IdleStream stream;
  if (reduction.transform_shard && chunk.size() > 0) reduction.transform_shard(stream, chunk.begin, chunk.end);
}

// An operation in rounds of messages. A round begins when all messages of the previous one are complete.
class MessageOperation : public Operation {
 public:
  void start() final { continues_ = begin_round(round_); }
  State advance() final {
    for (State state = State::waiting; continues_; state = State::progressed) {
      if (!round_is_done()) return state;
      receives_.clear();
      sends_.clear();
      received_ = sent_ = 0;
      continues_ = begin_round(++round_);
    }
    return State::done;
  }

 protected:
  MessageOperation(MpiRank& self, int first_round) : self_(self), tag_(self.next_tag()), round_(first_round) {}

  // Posts the messages of a round; false: the operation is done.
  virtual bool begin_round(int round) = 0;
  // Called when all messages that this rank receives in a round have arrived.
  virtual void on_received() {}

  void post_receive(int rank, void* to, std::size_t bytes) {
    if (bytes == 0) return;
    Receive& receive = receives_.emplace_back(Receive{.bytes = bytes});
    check(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, rank, tag_, self_.comm, &receive.request));
  }
  void post_send(int rank, const Tensor& piece) {
    if (piece.bytes() == 0) return;
    check(MPI_Isend(piece.data, static_cast<int>(piece.bytes()), MPI_BYTE, rank, tag_, self_.comm,
                    &sends_.emplace_back(MPI_REQUEST_NULL)));
    self_.bytes_sent.fetch_add(piece.bytes(), std::memory_order_relaxed);
  }

  MpiRank& self_;

 private:
  struct Receive {
    std::size_t bytes = 0;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  bool round_is_done() {
    int done = 0;
    while (received_ < receives_.size()) {
      MPI_Status status;
      check(MPI_Test(&receives_[received_].request, &done, &status));
      if (done == 0) return false;
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes));
      require_bytes({status.MPI_SOURCE, static_cast<std::size_t>(bytes)}, receives_[received_].bytes, self_.rank);
      if (++received_ == receives_.size()) on_received();
    }
    for (; sent_ < sends_.size(); ++sent_) {
      check(MPI_Test(&sends_[sent_], &done, MPI_STATUS_IGNORE));
      if (done == 0) return false;
    }
    return true;
  }

  int tag_;
  int round_;
  bool continues_ = true;
  std::vector<Receive> receives_;
  std::vector<MPI_Request> sends_;
  std::size_t received_ = 0;  // the first of them, which are complete
  std::size_t sent_ = 0;
};

// Round 0 exchanges values, round 1 results.
class DirectOperation final : public MessageOperation {
 public:
  DirectOperation(MpiRank& self, Reduction reduction)
      : MessageOperation(self, is_empty(reduction.values) ? 1 : 0),
        reduction_(std::move(reduction)),
        own_(reduction_.chunk_reduced_at(self.rank)),
        own_bytes_(static_cast<std::size_t>(own_.size()) * bytes_of(reduction_.values.type)) {}

 private:
  bool begin_round(int round) override {
    if (round == 1) transform_chunk(reduction_, own_);
    if (round == 2 || (round == 1 && is_empty(reduction_.results))) return false;
    if (round == 0) {
      received_ = std::make_unique_for_overwrite<std::byte[]>(own_bytes_ * static_cast<std::size_t>(self_.size - 1));
    }
    const Tensor& tensor = round == 0 ? reduction_.values : reduction_.results;
    for (int distance = 1; distance < self_.size; ++distance) {
      const int rank = self_.rank_after(distance);
      const Tensor theirs = elements_of(tensor, reduction_.chunk_reduced_at(rank));
      if (round == 0) {
        post_receive(rank, received_from(distance), own_bytes_);
        post_send(rank, theirs);
      } else {
        post_receive(rank, theirs.data, theirs.bytes());
        post_send(rank, elements_of(tensor, own_));
      }
    }
    return true;
  }

  // Adds in rank order, from the next rank to this one.
  void on_received() override {
    if (!received_) return;
    const Tensor own = elements_of(reduction_.values, own_);
    for (int distance = 2; distance < self_.size; ++distance) {
      add(own.type, received_from(distance), received_from(distance - 1), own_bytes_);
    }
    add(own.type, own.data, received_from(self_.size - 1), own_bytes_);
    received_.reset();
  }

  std::byte* received_from(int distance) const {
    return received_.get() + own_bytes_ * static_cast<std::size_t>(distance - 1);
  }

  Reduction reduction_;
  IndexRange own_;  // the chunk that this rank reduces
  std::size_t own_bytes_;
  std::unique_ptr<std::byte[]> received_;  // other ranks' values of this rank's chunk, beginning with the next rank
};

class RingOperation final : public MessageOperation {
 public:
  RingOperation(MpiRank& self, Reduction reduction)
      : MessageOperation(self, is_empty(reduction.values) ? self.size - 1 : 0), reduction_(std::move(reduction)) {}

 private:
  bool begin_round(int round) override {
    const int steps = self_.size - 1;
    if (round == steps) {
      scratch_.reset();
      transform_chunk(reduction_, reduction_.chunk_reduced_at(self_.rank));
    }
    if (round == 2 * steps || (round == steps && is_empty(reduction_.results))) return false;
    const bool adds = round < steps;
    if (adds && !scratch_) {
      const auto longest = std::ranges::max(reduction_.chunks, {}, &IndexRange::size);
      scratch_ = std::make_unique_for_overwrite<std::byte[]>(elements_of(reduction_.values, longest).bytes());
    }
    const Tensor& tensor = adds ? reduction_.values : reduction_.results;
    const auto chunk = [&](int index) {
      return elements_of(tensor, reduction_.chunks[static_cast<std::size_t>((index + 2 * self_.size) % self_.size)]);
    };
    incoming_ = chunk(self_.rank - round - 1);
    post_receive(self_.rank_after(steps), adds ? scratch_.get() : incoming_.data, incoming_.bytes());
    post_send(self_.rank_after(1), chunk(self_.rank - round));
    return true;
  }

  void on_received() override {
    if (scratch_) add(incoming_.type, incoming_.data, scratch_.get(), incoming_.bytes());
  }

  Reduction reduction_;
  Tensor incoming_;
  std::unique_ptr<std::byte[]> scratch_;  // null once the values are added
};

// A round is a message between rank 0 and one other rank.
class RootOperation final : public MessageOperation {
 public:
  RootOperation(MpiRank& self, const Tensor& values, RootDirection direction)
      : MessageOperation(self, 1), values_(values), direction_(direction) {}

 private:
  bool begin_round(int round) override {
    const bool at_root = self_.rank == 0;
    if (round > (at_root ? self_.size - 1 : 1)) return false;
    const int peer = at_root ? round : 0;
    if (at_root != (direction_ == RootDirection::reduce_to_root)) {
      post_send(peer, values_);
    } else {
      if (at_root && !scratch_) scratch_ = std::make_unique_for_overwrite<std::byte[]>(values_.bytes());
      post_receive(peer, at_root ? scratch_.get() : values_.data, values_.bytes());
    }
    return true;
  }

  void on_received() override {
    if (scratch_) add(values_.type, values_.data, scratch_.get(), values_.bytes());
  }

  Tensor values_;
  RootDirection direction_;
  std::unique_ptr<std::byte[]> scratch_;  // only at the root of a reduction
};

class WindowOperation final : public Operation {
 public:
  WindowOperation(MpiRank& self, PeerMemory& peer_memory, std::vector<Reduction> pieces, std::uint64_t number)
      : self_(self), peer_memory_(peer_memory), pieces_(std::move(pieces)), number_(number) {}

  void start() override {
    const auto location = [this](const Tensor& values) {
      return is_empty(values) ? SharedValues{} : peer_memory_.find(values).value();
    };
    OperationSlot& slot = peer_memory_.own_slot(number_);
    slot.published = {location(pieces_.front().values), location(pieces_.front().results)};
    slot.ready.store(number_, std::memory_order_release);
  }

  // Processes one piece per call.
  State advance() override {
    if (next_piece_ == pieces_.size()) return all_ranks_reached(&OperationSlot::done) ? State::done : State::waiting;
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

 private:
  // Whether all ranks have set this flag of their slots for this operation.
  bool all_ranks_reached(std::atomic<std::uint64_t> OperationSlot::*flag) {
    while (seen_ < self_.size && (peer_memory_.slot(seen_, number_).*flag).load(std::memory_order_acquire) >= number_) {
      ++seen_;
    }
    return seen_ == self_.size;
  }

  void look_up_memory() {
    const std::array<SharedValues, 2>& own = peer_memory_.own_slot(number_).published;
    for (int rank = 0; rank < self_.size; ++rank) {
      const std::array<SharedValues, 2>& published = peer_memory_.slot(rank, number_).published;
      for (std::size_t i = 0; i < own.size(); ++i) {
        require_bytes({rank, published[i].bytes}, own[i].bytes, self_.rank);
      }
      const auto in_memory = [&](const Tensor& tensor, const SharedValues& theirs) {
        if (rank == self_.rank || is_empty(tensor)) return static_cast<std::byte*>(tensor.data);
        return peer_memory_.map(rank, theirs);
      };
      values_.push_back(in_memory(pieces_.front().values, published[0]));
      results_.push_back(in_memory(pieces_.front().results, published[1]));
    }
    if (self_.size == 2) return;
    partial_sums_ = std::make_unique_for_overwrite<std::byte[]>(kBlockElements * sizeof(std::int64_t));
  }

  void run_piece(const Reduction& piece) {
    const IndexRange& own = piece.chunk_reduced_at(self_.rank);
    const bool at_once = !piece.transform_shard;
    for (std::int64_t begin = own.begin; begin < own.end; begin += kBlockElements) {
      const IndexRange block{begin, std::min(begin + kBlockElements, own.end)};
      if (!is_empty(piece.values)) add_values(block);
      if (at_once) send_results(block);
    }
    transform_chunk(piece, own);
    if (!at_once) send_results(own);
    count_bytes(piece);
  }

  // Adds in rank order, from the next rank to this one.
  void add_values(const IndexRange& range) {
    const Tensor own = elements_of(pieces_.front().values, range);
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
    add(own.type, own.data, sum, bytes);
  }

  void send_results(const IndexRange& range) {
    if (is_empty(pieces_.front().results) || range.size() == 0) return;
    const Tensor own = elements_of(pieces_.front().results, range);
    const auto offset = static_cast<std::size_t>(range.begin) * bytes_of(own.type);
    for (int distance = 1; distance < self_.size; ++distance) {
      std::memcpy(results_[static_cast<std::size_t>(self_.rank_after(distance))] + offset, own.data, own.bytes());
    }
  }

  // Counts the bytes that others read from this rank's memory and those that it writes into theirs.
  void count_bytes(const Reduction& piece) {
    const std::int64_t own = piece.chunk_reduced_at(self_.rank).size();
    std::int64_t all = 0;
    for (const IndexRange& chunk : piece.chunks) all += chunk.size();
    std::size_t bytes = 0;
    if (!is_empty(piece.values)) bytes += static_cast<std::size_t>(all - own) * bytes_of(piece.values.type);
    if (!is_empty(piece.results)) {
      bytes += static_cast<std::size_t>(own * (self_.size - 1)) * bytes_of(piece.results.type);
    }
    self_.bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
  }

  MpiRank& self_;
  PeerMemory& peer_memory_;
  std::vector<Reduction> pieces_;
  std::uint64_t number_;

  std::size_t next_piece_ = 0;
  int seen_ = 0;  // ranks whose current flag has been seen
  // The addresses of the tensors, by rank.
  std::vector<std::byte*> values_;
  std::vector<std::byte*> results_;
  std::unique_ptr<std::byte[]> partial_sums_;
};

}  // namespace

std::unique_ptr<Operation> make_direct_operation(MpiRank& self, Reduction reduction) {
  return std::make_unique<DirectOperation>(self, std::move(reduction));
}

std::unique_ptr<Operation> make_ring_operation(MpiRank& self, Reduction reduction) {
  return std::make_unique<RingOperation>(self, std::move(reduction));
}

std::unique_ptr<Operation> make_root_operation(MpiRank& self, const Tensor& values, RootDirection direction) {
  return std::make_unique<RootOperation>(self, values, direction);
}

std::unique_ptr<Operation> make_window_operation(MpiRank& self, PeerMemory& peer_memory, std::vector<Reduction> pieces,
                                                 std::uint64_t number) {
  return std::make_unique<WindowOperation>(self, peer_memory, std::move(pieces), number);
}

}  // namespace tutti::mpi
