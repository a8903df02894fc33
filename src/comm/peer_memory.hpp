#pragma once
// Memory that each rank shares with the other ranks of its host, and slots in which each rank publishes its tensors of
// an operation and its progress. The memory comes from memfd_create and has no name in a file system: ranks open each
// other's through /proc, so a killed job leaves nothing behind.

#include "tutti/backend/tensor.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/comm/world.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tutti {

// The location of a tensor in the publishing rank's memory. No bytes: there is no tensor.
struct SharedValues {
  std::uint64_t block = 0;  // unique among the rank's blocks, also over time
  int file = -1;            // the block's descriptor in the rank's process
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// One rank's state of one operation. A later operation reuses the slot once all ranks are done with this one.
struct OperationSlot {
  // At least the operation's number once `published` is valid. Written last.
  std::atomic<std::uint64_t> ready;
  std::array<SharedValues, 2> published;
  // At least the operation's number once this rank no longer accesses the memory of others.
  alignas(64) std::atomic<std::uint64_t> done;
};

class PeerMemory {
 public:
  // The number of consecutive operations that can have slots at the same time.
  static constexpr std::size_t kSlots = 8;

  // Null on all ranks unless every rank can open the memory of all others: they may be on different hosts, or isolated
  // from each other. Collective.
  static std::unique_ptr<PeerMemory> open(World& world);

  // Zeroed memory, aligned to 64 bytes. It may outlive this object. Throws an io error.
  Buffer allocate(std::size_t bytes);
  // The location of this tensor in memory from allocate(); null if it is elsewhere.
  std::optional<SharedValues> find(const Tensor& values) const;

  // Operations are numbered from 1.
  OperationSlot& own_slot(std::uint64_t operation) { return slots_[rank_][operation % kSlots]; }
  const OperationSlot& slot(int rank, std::uint64_t operation) const {
    return slots_[static_cast<std::size_t>(rank)][operation % kSlots];
  }
  // Maps the values of another rank into this process; the mapping is cached. Throws an io error. Not thread-safe.
  std::byte* map(int rank, const SharedValues& values);

 private:
  struct OwnBlocks;
  // What other ranks need to open the slots and the blocks of a rank.
  struct Peer {
    int process = 0;
    int slots_file = -1;
    std::uint64_t nonce = 0;  // a random number in the names of its blocks
  };

  explicit PeerMemory(int rank);

  std::size_t rank_;
  std::shared_ptr<OwnBlocks> own_;
  // Others may read the slots after this rank has finished; the pages exist while any rank maps them.
  Descriptor slots_file_;
  std::vector<Peer> peers_;  // by rank, including this one
  std::vector<OperationSlot*> slots_;
  std::map<std::pair<int, std::uint64_t>, Buffer> mapped_;
};

}  // namespace tutti
