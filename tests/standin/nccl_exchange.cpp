#include "standin/nccl_exchange.hpp"

#include "tutti/base/bf16.hpp"

#include "standin/finding.hpp"
#include "standin/runtime.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace tutti::standin {
namespace {

// Memory that abandoned messages still use.
std::vector<std::shared_ptr<void>>& memory_left_to_mpi() {
  static auto& memory = *new std::vector<std::shared_ptr<void>>;
  return memory;
}

Bf16 operator+(Bf16 one, Bf16 other) { return to_bf16(to_float(one) + to_float(other)); }

// NCCL's trees are for all-reduces alone, and faster where little is added. $NCCL_ALGO decides as it does there.
bool adds_along_tree(const Call& call) {
  constexpr std::size_t kBytesOfATree = 4096;
  if (call.kind != Call::Kind::all_reduce) return false;
  const char* const given = std::getenv("NCCL_ALGO");
  return given == nullptr ? call.bytes() < kBytesOfATree : std::string(given) == "Tree";
}

// The sum of element i of ranks first .. last - 1, of which each half is added first.
template <class T>
T sum_of_tree(const std::vector<std::vector<T>>& by_rank, std::size_t i, std::size_t first, std::size_t last) {
  if (last - first == 1) return by_rank[first][i];
  const std::size_t middle = (first + last) / 2;
  return sum_of_tree(by_rank, i, first, middle) + sum_of_tree(by_rank, i, middle, last);
}

// The sum of element i as a ring makes it, in which it ends at a rank.
template <class T>
T sum_of_ring(const std::vector<std::vector<T>>& by_rank, std::size_t i, std::size_t end) {
  const std::size_t ranks = by_rank.size();
  T sum = by_rank[(end + 1) % ranks][i];
  for (std::size_t step = 2; step <= ranks; ++step) sum = sum + by_rank[(end + step) % ranks][i];
  return sum;
}

// `rank`: that which receives the sums.
template <class T>
void add_all(const Call& call, int rank, const std::vector<std::vector<std::byte>>& bytes_by_rank) {
  std::vector<std::vector<T>> by_rank;
  for (const auto& bytes : bytes_by_rank) {
    std::memcpy(by_rank.emplace_back(call.count).data(), bytes.data(), bytes.size());
  }
  const bool has_tree = adds_along_tree(call);
  const bool has_chunks = call.kind == Call::Kind::all_reduce;  // of which each ends at another rank
  auto* const sums = static_cast<T*>(call.to);
  for (std::size_t i = 0; i < call.count; ++i) {
    const std::size_t end = has_chunks ? i * by_rank.size() / call.count : static_cast<std::size_t>(rank);
    sums[i] = has_tree ? sum_of_tree(by_rank, i, 0, by_rank.size()) : sum_of_ring(by_rank, i, end);
  }
}

}  // namespace

void check_mpi(int status) {
  if (status != MPI_SUCCESS) throw Finding("MPI under the stand-in for NCCL: error " + std::to_string(status));
}

int world_rank() {
  int initialised = 0;
  int rank = 0;
  check_mpi(MPI_Initialized(&initialised));
  if (initialised != 0) check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  return rank;
}

RankCard card_of(int rank) {
  RankCard card{.rank = rank, .world_rank = world_rank()};
  const char* const given = std::getenv("NCCL_HOSTID");
  if (given != nullptr) {
    std::strncpy(card.host.data(), given, card.host.size() - 1);
  } else if (::gethostname(card.host.data(), card.host.size() - 1) != 0) {
    throw std::runtime_error("gethostname");
  }
  if (cudaDeviceGetPCIBusId(card.bus_id.data(), static_cast<int>(card.bus_id.size()), current_device()) !=
      cudaSuccess) {
    throw std::runtime_error("no device");
  }
  return card;
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

std::size_t Call::bytes_from(int ranks) const {
  return kind == Kind::reduce_scatter ? bytes() * static_cast<std::size_t>(ranks) : bytes();
}

std::size_t Call::bytes_to(int ranks) const {
  return kind == Kind::all_gather ? bytes() * static_cast<std::size_t>(ranks) : bytes();
}

bool Exchange::has_values() const {
  if (call_.kind == Call::Kind::broadcast) return rank_ == call_.other;
  return call_.kind != Call::Kind::receive;
}

bool Exchange::sends_to(int other) const {
  if (call_.kind == Call::Kind::reduce || call_.kind == Call::Kind::send) return other == call_.other;
  return has_values();
}

bool Exchange::receives_from(int other) const {
  if (call_.kind == Call::Kind::reduce) return rank_ == call_.other;
  if (call_.kind == Call::Kind::broadcast || call_.kind == Call::Kind::receive) return other == call_.other;
  return call_.kind != Call::Kind::send;
}

void Exchange::start(const std::vector<RankCard>& ranks) {
  constexpr std::uint32_t kMostQueries = 8;
  started_ = true;
  late_by_ = runtime().schedule.random().below(kMostQueries);
  const bool scatters = call_.kind == Call::Kind::reduce_scatter;
  if (has_values()) mine_.resize(call_.bytes_from(static_cast<int>(ranks.size())));
  if (!mine_.empty()) std::memcpy(mine_.data(), call_.from, mine_.size());
  by_rank_.resize(ranks.size());
  for (const RankCard& other : ranks) {
    const auto at = static_cast<std::size_t>(other.rank);
    const std::byte* const theirs = mine_.data() + (scatters ? at * call_.bytes() : 0);
    if (other.rank == rank_) {
      if (has_values()) by_rank_[at].assign(theirs, theirs + call_.bytes());
      continue;
    }
    if (sends_to(other.rank)) messages_.send(theirs, call_.bytes(), other.world_rank, tag_);
    if (!receives_from(other.rank)) continue;
    by_rank_[at].resize(call_.bytes());
    messages_.receive(by_rank_[at].data(), call_.bytes(), other.world_rank, tag_);
  }
}

bool Exchange::arrived() {
  if (late_by_ == 0) return messages_.arrived();
  --late_by_;
  return false;
}

void Exchange::finish() {
  if (call_.bytes() == 0 || call_.kind == Call::Kind::send) return;
  if (call_.kind == Call::Kind::reduce && rank_ != call_.other) return;
  if (call_.adds() && call_.type == ncclFloat32) return add_all<float>(call_, rank_, by_rank_);
  if (call_.adds() && call_.type == ncclBfloat16) return add_all<Bf16>(call_, rank_, by_rank_);
  if (call_.adds() && call_.type == ncclInt32) return add_all<std::uint32_t>(call_, rank_, by_rank_);
  if (call_.adds()) return add_all<std::int64_t>(call_, rank_, by_rank_);
  auto* to = static_cast<std::byte*>(call_.to);
  for (const auto& values : by_rank_) {
    std::copy(values.begin(), values.end(), to);
    if (call_.kind == Call::Kind::all_gather) to += call_.bytes();
  }
}

}  // namespace tutti::standin
