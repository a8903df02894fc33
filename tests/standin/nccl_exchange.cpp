#include "standin/nccl_exchange.hpp"

#include "standin/finding.hpp"

#include <cstring>
#include <string>

namespace tutti::standin {
namespace {

// What messages that were given up still use.
std::vector<std::shared_ptr<void>>& memory_left_to_mpi() {
  static auto& memory = *new std::vector<std::shared_ptr<void>>;
  return memory;
}

template <class T>
void add_all(void* sums, std::size_t count, const std::vector<std::vector<std::byte>>& by_rank) {
  std::vector<T> total(count);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    std::vector<T> addends(count);
    if (count > 0) std::memcpy(addends.data(), by_rank[rank].data(), by_rank[rank].size());
    for (std::size_t i = 0; i < count; ++i) total[i] = rank == 0 ? addends[i] : total[i] + addends[i];
  }
  if (count > 0) std::memcpy(sums, total.data(), count * sizeof(T));
}

}  // namespace

void check_mpi(int status) {
  if (status != MPI_SUCCESS) throw Finding("MPI under the stand-in for NCCL: error " + std::to_string(status));
}

void Messages::send(const void* data, std::size_t bytes, int to, int tag) {
  requests_.push_back(MPI_REQUEST_NULL);
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, MPI_COMM_WORLD, &requests_.back()));
}

void Messages::receive(void* data, std::size_t bytes, int from, int tag) {
  requests_.push_back(MPI_REQUEST_NULL);
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, MPI_COMM_WORLD, &requests_.back()));
}

bool Messages::arrived() {
  if (requests_.empty()) return true;
  int all = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE));
  if (all != 0) requests_.clear();
  return all != 0;
}

void Messages::give_up(std::shared_ptr<void> memory) {
  if (arrived()) return;
  for (MPI_Request& request : requests_) {
    if (request != MPI_REQUEST_NULL) check_mpi(MPI_Request_free(&request));
  }
  requests_.clear();
  memory_left_to_mpi().push_back(std::move(memory));
}

Introduction::Introduction(const RankCard& mine, int ranks, int root, const Channel& channel)
    : ranks_(static_cast<std::size_t>(ranks)), mine_(mine), channel_(channel), is_root_(mine.world_rank == root) {
  if (ranks == 1) {
    ranks_[0] = mine;
    listed_ = true;
    return;
  }
  cards_.send(&mine_, sizeof mine_, root, channel_.cards());
  list_.receive(ranks_.data(), ranks_.size() * sizeof(RankCard), root, channel_.list());
  if (!is_root_) return;
  arriving_.resize(ranks_.size());
  for (RankCard& card : arriving_) cards_.receive(&card, sizeof card, MPI_ANY_SOURCE, channel_.cards());
}

bool Introduction::done() {
  if (!cards_.arrived()) return false;
  if (is_root_ && !listed_) {
    std::vector<RankCard> listed(arriving_.size());
    for (const RankCard& card : arriving_) listed.at(static_cast<std::size_t>(card.rank)) = card;
    arriving_ = listed;
    for (const RankCard& card : arriving_) {
      list_.send(arriving_.data(), arriving_.size() * sizeof(RankCard), card.world_rank, channel_.list());
    }
    listed_ = true;
  }
  return list_.arrived();
}

void Introduction::give_up(const std::shared_ptr<void>& memory) {
  cards_.give_up(memory);
  list_.give_up(memory);
}

void Exchange::start(const std::vector<RankCard>& ranks, int rank, int tag) {
  by_rank_.assign(ranks.size(), std::vector<std::byte>(values_.bytes()));
  auto& mine = by_rank_[static_cast<std::size_t>(rank)];
  if (!mine.empty()) std::memcpy(mine.data(), values_.data, mine.size());
  for (const RankCard& other : ranks) {
    if (other.rank == rank) continue;
    messages_.send(mine.data(), mine.size(), other.world_rank, tag);
    auto& theirs = by_rank_[static_cast<std::size_t>(other.rank)];
    messages_.receive(theirs.data(), theirs.size(), other.world_rank, tag);
  }
}

void Exchange::add() {
  if (values_.type == Type::f32) add_all<float>(values_.data, values_.count, by_rank_);
  if (values_.type == Type::i64) add_all<std::int64_t>(values_.data, values_.count, by_rank_);
}

}  // namespace tutti::standin
