#include "star_operation.hpp"

#include "check.hpp"

namespace tutti::mpi {

StarOperation::StarOperation(const RankPlace& place, const Tensor& values, StarDirection direction, int tag)
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

}  // namespace tutti::mpi
