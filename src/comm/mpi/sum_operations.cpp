#include "sum_operations.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstring>
#include <utility>

namespace tutti::mpi {
namespace {

// What stays in a core's own cache while it is added up and passed on.
constexpr std::int64_t kBlockElements = 16384;

PostedValues posted(const Window& window, const Tensor& values) {
  return is_empty(values) ? PostedValues{} : window.find(values).value();
}

// Compute threads may flush denormals to zero and a helper thread may not; sums are the same bits in both.
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

void require_bytes(const Given& given, std::size_t bytes, int rank) {
  if (given.bytes == bytes) return;
  throw Error(ErrorSource::internal,
              fmt::format("rank {} gave {} bytes to a sum where rank {} expects {}: the ranks enqueued different sums",
                          given.rank, given.bytes, rank, bytes));
}

void require_bytes(const MPI_Status& status, std::size_t bytes, int rank) {
  int came = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &came));
  require_bytes(Given{status.MPI_SOURCE, static_cast<std::size_t>(came)}, bytes, rank);
}

void add(ElementType type, std::byte* to, const std::byte* from, std::size_t bytes) {
  const DefaultFloatMode mode;
  if (type == ElementType::f32) {
    add_as<float>(to, from, bytes);
  } else {
    // Unsigned, so that a sum beyond the range wraps around as the library's does.
    add_as<std::uint64_t>(to, from, bytes);
  }
}

DirectOperation::DirectOperation(const RankPosition& place, SumWork work, int tag)
    : place_(place), work_(std::move(work)), tag_(tag) {}

void DirectOperation::start() {
  if (is_empty(work_.values)) {
    pass_on();
  } else {
    send_values();
  }
}

void DirectOperation::send_values() {
  const std::size_t bytes = part_of(work_.values, work_.ending_at(place_.rank)).bytes();
  received_ = std::make_unique_for_overwrite<std::byte[]>(bytes * static_cast<std::size_t>(place_.size - 1));
  for (int places = 1; places < place_.size; ++places) {
    const int rank = place_.rank_after(places);
    post_receive(rank, received_.get() + bytes * static_cast<std::size_t>(places - 1), bytes);
    post_send(rank, part_of(work_.values, work_.ending_at(rank)));
  }
}

// The chunk begins at the next rank and ends at this one.
void DirectOperation::add_up() {
  const Tensor own = part_of(work_.values, work_.ending_at(place_.rank));
  const std::size_t bytes = own.bytes();
  for (int places = 2; places < place_.size; ++places) {
    add(own.type, received_.get() + bytes * static_cast<std::size_t>(places - 1),
        received_.get() + bytes * static_cast<std::size_t>(places - 2), bytes);
  }
  add(own.type, static_cast<std::byte*>(own.data), received_.get() + bytes * static_cast<std::size_t>(place_.size - 2),
      bytes);
  received_.reset();
}

void DirectOperation::pass_on() {
  stage_ = Stage::passing_on;
  const ElementRange& own = work_.ending_at(place_.rank);
  if (work_.then && own.elements() > 0) work_.then(own);
  if (is_empty(work_.results)) return;
  for (int places = 1; places < place_.size; ++places) {
    const int rank = place_.rank_after(places);
    const Tensor theirs = part_of(work_.results, work_.ending_at(rank));
    post_receive(rank, static_cast<std::byte*>(theirs.data), theirs.bytes());
    post_send(rank, part_of(work_.results, own));
  }
}

void DirectOperation::post_send(int rank, const Tensor& part) {
  if (part.bytes() == 0) return;
  awaited_bytes_.push_back(0);
  check(MPI_Isend(part.data, static_cast<int>(part.bytes()), MPI_BYTE, rank, tag_, place_.comm,
                  &requests_.emplace_back(MPI_REQUEST_NULL)));
  place_.bytes_sent.fetch_add(part.bytes(), std::memory_order_relaxed);
}

void DirectOperation::post_receive(int rank, std::byte* to, std::size_t bytes) {
  if (bytes == 0) return;
  awaited_bytes_.push_back(bytes);
  check(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, rank, tag_, place_.comm,
                  &requests_.emplace_back(MPI_REQUEST_NULL)));
}

Operation::State DirectOperation::advance() {
  for (State state = State::waiting; stage_ != Stage::over; state = State::moved) {
    int done = 0;
    std::vector<MPI_Status> statuses(requests_.size());
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses.data()));
    if (done == 0) return state;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (awaited_bytes_[i] > 0) require_bytes(statuses[i], awaited_bytes_[i], place_.rank);
    }
    requests_.clear();
    awaited_bytes_.clear();
    if (stage_ == Stage::passing_on) {
      stage_ = Stage::over;
    } else {
      add_up();
      pass_on();
    }
  }
  return State::done;
}

RingOperation::RingOperation(const RankPosition& place, SumWork work, int tag)
    : place_(place),
      work_(std::move(work)),
      tag_(tag),
      step_(is_empty(work_.values) ? place.size - 1 : 0),
      end_((is_empty(work_.results) ? 1 : 2) * (place.size - 1)) {}

RingOperation::Chunk RingOperation::chunk(int number) const {
  const ElementRange& range = work_.chunks[static_cast<std::size_t>((number + 2 * place_.size) % place_.size)];
  const Tensor part = part_of(adding() ? work_.values : work_.results, range);
  return {.data = static_cast<std::byte*>(part.data), .bytes = part.bytes()};
}

void RingOperation::start() {
  if (adding()) {
    const auto longest = std::ranges::max(work_.chunks, {}, &ElementRange::elements);
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(part_of(work_.values, longest).bytes());
  }
  begin_step();
}

void RingOperation::begin_step() {
  if (step_ == place_.size - 1) {
    scratch_.reset();
    const ElementRange& whole = work_.ending_at(place_.rank);
    if (work_.then && whole.elements() > 0) work_.then(whole);
  }
  if (step_ < end_) post();
}

void RingOperation::post() {
  const Chunk in = incoming();
  const Chunk out = outgoing();
  const int next = place_.rank_after(1);
  const int previous = place_.rank_after(place_.size - 1);
  received_ = false;
  if (in.bytes > 0) {
    check(MPI_Irecv(adding() ? scratch_.get() : in.data, static_cast<int>(in.bytes), MPI_BYTE, previous, tag_,
                    place_.comm, &receiving_));
  }
  if (out.bytes > 0) {
    check(MPI_Isend(out.data, static_cast<int>(out.bytes), MPI_BYTE, next, tag_, place_.comm, &sending_));
    place_.bytes_sent.fetch_add(out.bytes, std::memory_order_relaxed);
  }
}

Operation::State RingOperation::advance() {
  State state = State::waiting;
  while (step_ < end_) {
    if (!step_is_over()) return state;
    state = State::moved;
    ++step_;
    begin_step();
  }
  return State::done;
}

bool RingOperation::step_is_over() {
  int done = 0;
  if (!received_) {
    MPI_Status status;
    check(MPI_Test(&receiving_, &done, &status));
    if (done == 0) return false;
    take_in(status);
    received_ = true;
  }
  check(MPI_Test(&sending_, &done, MPI_STATUS_IGNORE));
  return done != 0;
}

void RingOperation::take_in(const MPI_Status& status) {
  const Chunk in = incoming();
  if (in.bytes == 0) return;
  require_bytes(status, in.bytes, place_.rank);
  if (adding()) add(work_.values.type, in.data, scratch_.get(), in.bytes);
}

StarOperation::StarOperation(const RankPosition& place, const Tensor& values, StarDirection direction, int tag)
    : place_(place),
      values_(values),
      direction_(direction),
      tag_(tag),
      peer_(first() ? 1 : 0),
      last_peer_(first() ? place.size - 1 : 0) {}

void StarOperation::start() {
  if (first() && receiving()) scratch_ = std::make_unique_for_overwrite<std::byte[]>(values_.bytes());
  post();
}

void StarOperation::post() {
  const auto bytes = static_cast<int>(values_.bytes());
  if (receiving()) {
    void* const to = first() ? scratch_.get() : values_.data;
    check(MPI_Irecv(to, bytes, MPI_BYTE, peer_, tag_, place_.comm, &request_));
  } else {
    check(MPI_Isend(values_.data, bytes, MPI_BYTE, peer_, tag_, place_.comm, &request_));
    place_.bytes_sent.fetch_add(values_.bytes(), std::memory_order_relaxed);
  }
}

Operation::State StarOperation::advance() {
  for (State state = State::waiting;; state = State::moved) {
    int done = 0;
    MPI_Status status;
    check(MPI_Test(&request_, &done, &status));
    if (done == 0) return state;
    if (receiving()) take_in(status);
    if (peer_ == last_peer_) return State::done;
    ++peer_;
    post();
  }
}

void StarOperation::take_in(const MPI_Status& status) {
  require_bytes(status, values_.bytes(), place_.rank);
  if (first()) add(values_.type, static_cast<std::byte*>(values_.data), scratch_.get(), values_.bytes());
}

WindowOperation::WindowOperation(Window& window, const RankPosition& place, std::vector<SumWork> pieces,
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
