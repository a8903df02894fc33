#include "direct_operation.hpp"

#include "check.hpp"

#include <utility>

namespace tutti::mpi {

DirectOperation::DirectOperation(const RankPlace& place, SumWork work, int tag)
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

}  // namespace tutti::mpi
