#pragma once
// The NCCL stand-in's messages over MPI: the ranks' identities, and the values to reduce. Never blocks.

#include <mpi.h>
#include <nccl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tutti::standin {

// A rank's identity when a communicator is made.
struct RankCard {
  int rank = 0;
  int world_rank = 0;  // in MPI_COMM_WORLD
  std::array<char, 256> host{};
  std::array<char, 16> bus_id{};
};

int world_rank();  // this process's
// This process's, on the device it uses.
RankCard card_of(int rank);

// Messages of one communicator: tags that no other uses.
struct Channel {
  int first_tag = 0;
  static constexpr int kTags = 1 << 17;
  int cards() const { return first_tag; }
  int list() const { return first_tag + 1; }
  int failure() const { return first_tag + 2; }
  int from_rank_to_rank() const { return first_tag + 3; }  // distinguished by their order
  int collective(std::int64_t number) const { return first_tag + 4 + static_cast<int>(number % (kTags - 4)); }
};

// Throws a Finding when MPI fails.
void check_mpi(int status);

// Messages in flight. If they are abandoned, MPI keeps their memory forever.
class Messages {
 public:
  void send(const void* data, std::size_t bytes, int to, int tag);
  void receive(void* data, std::size_t bytes, int from, int tag);
  bool arrived();
  bool empty() const { return requests_.empty(); }
  // `memory` is what they use.
  void give_up(std::shared_ptr<void> memory);

 private:
  std::vector<MPI_Request> requests_;
};

// Every rank sends its identity to the rank that made the id, which sends the list of all back.
class Introduction {
 public:
  Introduction(const RankCard& mine, int ranks, int root, const Channel& channel);
  bool done();
  // `memory` holds this.
  void give_up(const std::shared_ptr<void>& memory);
  // By rank, when done.
  const std::vector<RankCard>& ranks() const { return ranks_; }

 private:
  std::vector<RankCard> ranks_;
  std::vector<RankCard> arriving_;
  RankCard mine_;
  Channel channel_;
  bool is_root_;
  bool listed_ = false;
  Messages cards_;
  Messages list_;
};

// The arguments of a rank's call. Gathered or scattered values are `count` per rank.
struct Call {
  enum class Kind { all_reduce, reduce, reduce_scatter, broadcast, all_gather, send, receive };
  Kind kind = Kind::all_reduce;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int other = 0;  // the root, or the peer of a send or receive

  bool is_collective() const { return kind != Kind::send && kind != Kind::receive; }
  bool adds() const { return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter; }
  std::size_t bytes() const {
    return count * (type == ncclBfloat16 ? 2 : type == ncclFloat32 || type == ncclInt32 ? 4 : 8);
  }
  // Of `from` and of `to`, on a rank that has them.
  std::size_t bytes_from(int ranks) const;
  std::size_t bytes_to(int ranks) const;
};

// Its messages, each from the rank that has the values to the one that needs them. The receiver adds values in the
// order of NCCL's rings or trees, so that all get the same bits. They arrive late, by a random number of queries.
class Exchange {
 public:
  Exchange(const Call& call, int rank, int tag) : call_(call), rank_(rank), tag_(tag) {}

  bool started() const { return started_; }
  void start(const std::vector<RankCard>& ranks);
  bool arrived();
  void finish();
  static void give_up(const std::shared_ptr<Exchange>& exchange) { exchange->messages_.give_up(exchange); }

 private:
  bool has_values() const;
  bool sends_to(int other) const;
  bool receives_from(int other) const;

  Call call_;
  int rank_;
  int tag_;
  bool started_ = false;
  std::uint32_t late_by_ = 0;
  std::vector<std::byte> mine_;
  std::vector<std::vector<std::byte>> by_rank_;  // empty where nothing comes
  Messages messages_;
};

}  // namespace tutti::standin
