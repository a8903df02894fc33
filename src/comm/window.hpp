#pragma once
// Memory of each rank that the other ranks of its host see too, and a board on which every rank posts what it gives to
// an operation and how far it is. Nothing of it has a name in a file system: a rank opens the others' memory through
// their processes, so that nothing is left behind by a killed job.

#include "tutti/backend/tensor.hpp"
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

class MemoryBlock;
class OwnBlocks;

// Values in memory of the rank that posts this. Of no bytes: none.
struct PostedValues {
  std::uint64_t block = 0;  // never that of another block of the same rank
  int file = -1;            // the descriptor of that block in the rank's process
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// One rank's part in one operation; a later one takes its place once all ranks are done with the operation.
struct Post {
  // The number of the operation that this is of, or one that came before. Set last.
  std::atomic<std::uint64_t> ready;
  std::array<PostedValues, 2> given;
  // Likewise, once this rank no more touches the others' memory.
  alignas(64) std::atomic<std::uint64_t> done;
};

class Window {
 public:
  // At most this many consecutive operations may be on the board.
  static constexpr std::size_t kPosts = 8;

  // Null, on all ranks, unless every rank can open the memory of every other one: they are of different hosts, or are
  // kept apart on one. Collective.
  static std::unique_ptr<Window> open(World& world);
  ~Window();

  // Zeroed, aligned to 64 bytes; it may outlive the window. Throws an io error.
  Buffer allocate(std::size_t bytes);
  // Where in memory of allocate() this lies; null: elsewhere.
  std::optional<PostedValues> find(const Tensor& values) const;

  // Operations count from 1.
  Post& own_post(std::uint64_t operation);
  const Post& post(int rank, std::uint64_t operation) const;
  // The same memory in this process, once and for all. Throws an io error. From one thread at a time.
  std::byte* map(int rank, const PostedValues& values);

 private:
  struct Peer {
    int process = 0;
    int board = -1;          // its descriptor there
    std::uint64_t mark = 0;  // in the names of its blocks
  };

  Window();
  // False when one of them cannot be opened.
  bool map_boards();

  std::shared_ptr<OwnBlocks> own_;
  std::unique_ptr<MemoryBlock> board_;
  std::vector<Peer> peers_;  // by rank, this one too
  std::vector<Post*> boards_;
  std::map<std::pair<int, std::uint64_t>, std::unique_ptr<MemoryBlock>> mapped_;
  int rank_ = 0;
};

}  // namespace tutti
