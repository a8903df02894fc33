#include "ring_operation.hpp"

#include "check.hpp"

#include <algorithm>
#include <utility>

namespace tutti::mpi {

RingOperation::RingOperation(const RankPlace& place, SumWork work, int tag)
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

}  // namespace tutti::mpi
