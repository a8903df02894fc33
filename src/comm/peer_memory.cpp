#include "peer_memory.hpp"

#include "tutti/base/error.hpp"

#include "node_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <system_error>

namespace tutti {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

[[noreturn]] void throw_system_error(const char* what, std::size_t bytes, int status) {
  const bool too_little = status == ENOMEM || status == ENOSPC;
  throw Error(ErrorSource::io, fmt::format("cannot {} {:.1f} MiB of memory that the ranks of this host share: {}{}",
                                           what, static_cast<double>(bytes) / 0x1p20, std::strerror(status),
                                           too_little ? "; request more memory, or start fewer ranks per host" : ""));
}

std::string name_of_block(std::uint64_t nonce, std::uint64_t number) {
  return fmt::format("tutti-{:016x}-{}", nonce, number);
}

// The block number of a rank's slots.
constexpr std::uint64_t kSlotsBlock = 0;

// Creates zeroed memory with all pages allocated.
Descriptor create_file(const std::string& name, std::size_t bytes) {
  Descriptor file(::memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!file) throw_system_error("open", bytes, errno);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) throw_system_error("size", bytes, errno);
  const int status = allocate_pages(file.get(), 0, bytes);
  if (status != 0) throw_system_error("allocate", bytes, status);
  return file;
}

std::byte* map_file(const Descriptor& file, std::size_t bytes, int flags) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file.get(), 0);
  if (mapped == MAP_FAILED) throw_system_error("map", bytes, errno);
  return static_cast<std::byte*>(mapped);
}

// Opens the memory of another process and checks its name.
Buffer open_block(int process, int file, const std::string& name) {
  const std::string link = fmt::format("/proc/{}/fd/{}", process, file);
  std::error_code failure;
  // In another PID namespace, the process ID may belong to another process.
  if (std::filesystem::read_symlink(link, failure) != fmt::format("/memfd:{} (deleted)", name)) {
    throw_system_error("find", 0, ENOENT);
  }
  const Descriptor opened(::open(link.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!opened || ::fstat(opened.get(), &status) != 0) throw_system_error("open", 0, errno);
  const auto bytes = static_cast<std::size_t>(status.st_size);
  return {map_file(opened, bytes, MAP_SHARED), bytes, MemorySpace::host,
          [bytes](void* data) { ::munmap(data, bytes); }};
}

}  // namespace

// This rank's blocks whose buffers still exist.
struct PeerMemory::OwnBlocks {
  struct Block {
    std::uint64_t number;
    Descriptor file;
    std::size_t bytes;
  };

  std::byte* make(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    const std::uint64_t number = next++;
    Descriptor file = create_file(name_of_block(nonce, number), bytes);
    std::byte* const data = map_file(file, bytes, MAP_SHARED | MAP_POPULATE);
    blocks.emplace(data, Block{number, std::move(file), bytes});
    return data;
  }

  void release(void* data) {
    const std::lock_guard lock(mutex);
    const auto entry = blocks.find(static_cast<const std::byte*>(data));
    const Block& block = entry->second;
    // Frees the pages now, even if others still map them. If that fails, they are freed with the last mapping.
    static_cast<void>(
        ::fallocate(block.file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(block.bytes)));
    ::munmap(data, block.bytes);
    blocks.erase(entry);
  }

  std::optional<SharedValues> find(const void* data, std::size_t bytes) const {
    const std::lock_guard lock(mutex);
    auto after = blocks.upper_bound(static_cast<const std::byte*>(data));
    if (after == blocks.begin()) return std::nullopt;
    const auto& [begin, block] = *--after;
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(data) - begin);
    if (offset + bytes > block.bytes) return std::nullopt;
    return SharedValues{.block = block.number, .file = block.file.get(), .offset = offset, .bytes = bytes};
  }

  const std::uint64_t nonce = (std::uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  mutable std::mutex mutex;
  std::uint64_t next = kSlotsBlock + 1;
  std::map<const std::byte*, Block, std::less<>> blocks;
};

PeerMemory::PeerMemory(int rank)
    : rank_(static_cast<std::size_t>(rank)),
      own_(std::make_shared<OwnBlocks>()),
      slots_file_(create_file(name_of_block(own_->nonce, kSlotsBlock), kSlots * sizeof(OperationSlot))) {}

std::unique_ptr<PeerMemory> PeerMemory::open(World& world) {
  std::unique_ptr<PeerMemory> memory;
  try {
    if (world.local_size() == world.size()) memory.reset(new PeerMemory(world.rank()));
  } catch (const Error&) {
    // Some systems and containers do not allow such memory; the communicator then uses other algorithms.
  }
  if (!world.all_true(memory != nullptr)) return nullptr;
  const Peer self{.process = ::getpid(), .slots_file = memory->slots_file_.get(), .nonce = memory->own_->nonce};
  for (const auto& peer : all_gather_values<Peer>(world, std::span(&self, 1))) memory->peers_.push_back(peer.front());
  bool opened = true;
  try {
    for (int rank = 0; rank < world.size(); ++rank) {
      const int file = memory->peers_[static_cast<std::size_t>(rank)].slots_file;
      std::byte* const slots = memory->map(rank, {.block = kSlotsBlock, .file = file});
      memory->slots_.push_back(reinterpret_cast<OperationSlot*>(slots));
    }
  } catch (const Error&) {
    opened = false;
  }
  return world.all_true(opened) ? std::move(memory) : nullptr;
}

Buffer PeerMemory::allocate(std::size_t bytes) {
  if (bytes == 0) return allocate_host(0);
  return {own_->make(bytes), bytes, MemorySpace::host, [own = own_](void* data) { own->release(data); }};
}

std::optional<SharedValues> PeerMemory::find(const Tensor& values) const {
  return own_->find(values.data, values.bytes());
}

std::byte* PeerMemory::map(int rank, const SharedValues& values) {
  auto& block = mapped_[{rank, values.block}];
  if (block.data() == nullptr) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    try {
      block = open_block(peer.process, values.file, name_of_block(peer.nonce, values.block));
    } catch (const Error& error) {
      throw Error(ErrorSource::mpi, fmt::format("rank {} of this host: {}; has it ended?", rank, error.what()));
    }
  }
  if (values.offset + values.bytes > block.bytes()) throw_system_error("use", values.bytes, EINVAL);
  return static_cast<std::byte*>(block.data()) + values.offset;
}

}  // namespace tutti
