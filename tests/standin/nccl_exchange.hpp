#pragma once
// What the stand-in for NCCL sends between ranks, over MPI: who they are, and the values that they add. Never waits.

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tutti::standin {

// How a rank is told from others when a communicator is made.
struct RankCard {
  int rank = 0;
  int world_rank = 0;  // in MPI_COMM_WORLD
  std::array<char, 256> host{};
  std::array<char, 16> uuid{};
};

// Messages of one communicator: tags that no other uses.
struct Channel {
  int first_tag = 0;
  static constexpr int kTags = 1 << 18;
  int cards() const { return first_tag; }
  int list() const { return first_tag + 1; }
  int failure() const { return first_tag + 2; }
  int sum(std::int64_t number) const { return first_tag + 3 + static_cast<int>(number % (kTags - 3)); }
};

// Throws a Finding when MPI fails.
void check_mpi(int status);

// Messages on their way. Given up, they leave their memory to MPI for good.
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

// Every rank's card goes to the one that made the id, and the list of all back from there.
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

// Each rank's values to each other rank; added in the order of ranks, so that all get the same bits.
class Exchange {
 public:
  enum class Type { f32, i64 };
  struct Values {
    void* data = nullptr;
    std::size_t count = 0;
    Type type = Type::f32;
    std::size_t bytes() const { return count * (type == Type::f32 ? 4 : 8); }
  };
  explicit Exchange(const Values& values) : values_(values) {}

  bool started() const { return !by_rank_.empty(); }
  void start(const std::vector<RankCard>& ranks, int rank, int tag);
  bool arrived() { return messages_.arrived(); }
  void add();
  static void give_up(const std::shared_ptr<Exchange>& exchange) { exchange->messages_.give_up(exchange); }

 private:
  Values values_;
  std::vector<std::vector<std::byte>> by_rank_;
  Messages messages_;
};

}  // namespace tutti::standin
