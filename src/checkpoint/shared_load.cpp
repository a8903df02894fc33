#include "shared_load.hpp"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tutti {
namespace {

void broadcast_bytes(World& world, std::vector<std::byte>& bytes) {
  std::uint64_t length = bytes.size();
  world.broadcast(std::as_writable_bytes(std::span(&length, 1)), 0);
  bytes.resize(length);
  world.broadcast(bytes, 0);
}

}  // namespace

CheckpointBytes broadcast_checkpoint(World& world, CheckpointBytes mine) {
  if (world.size() == 1) return mine;
  std::uint64_t files = mine.images.size();
  world.broadcast(std::as_writable_bytes(std::span(&files, 1)), 0);
  mine.images.resize(files);
  broadcast_bytes(world, mine.manifest);
  for (std::vector<std::byte>& image : mine.images) broadcast_bytes(world, image);
  return mine;
}

}  // namespace tutti
