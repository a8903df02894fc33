#include "peer_memory.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"

#include "arguments.hpp"
#include "node_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <random>
#include <span>
#include <string>

namespace tutti {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

[[noreturn]] void throw_system_error(const char* what, std::size_t bytes, int status) {
  const bool too_little = status == ENOMEM || status == ENOSPC;
  throw Error(ErrorSource::io, fmt::format("cannot {} {:.1f} MiB of memory that the ranks of this host share: {}{}",
                                           what, static_cast<double>(bytes) / 0x1p20, std::strerror(status),
                                           too_little ? "; request more memory, or start fewer ranks per host" : ""));
}

std::uint64_t random_nonce() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// The block number of a rank's slots.
constexpr std::uint64_t kSlotsBlock = 0;

std::string name_of_block(std::uint64_t nonce, std::uint64_t number) {
  return fmt::format("tutti-{:016x}-{}", nonce, number);
}

// The target of a link; empty if it cannot be read.
std::string target_of(const std::string& link) {
  std::array<char, 128> target{};
  const auto length = ::readlink(link.c_str(), target.data(), target.size());
  return {target.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

}  // namespace

class SharedMemoryBlock {
 public:
  // Creates zeroed memory with all pages allocated.
  SharedMemoryBlock(const std::string& name, std::size_t bytes) : bytes_(bytes) {
    file_ = Descriptor(::memfd_create(name.c_str(), MFD_CLOEXEC));
    if (!file_) throw_system_error("open", bytes, errno);
    if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) throw_system_error("size", bytes, errno);
    if (const int status = allocate_pages(file_.get(), bytes); status != 0)
      throw_system_error("allocate", bytes, status);
    map(MAP_SHARED | MAP_POPULATE);
  }
  // Opens the memory of another process and checks its name.
  SharedMemoryBlock(int process, int file, const std::string& name) {
    const std::string link = fmt::format("/proc/{}/fd/{}", process, file);
    // In another PID namespace, the process ID may belong to another process.
    if (target_of(link) != fmt::format("/memfd:{} (deleted)", name)) throw_system_error("find", 0, ENOENT);
    file_ = Descriptor(::open(link.c_str(), O_RDWR | O_CLOEXEC));
    struct stat status {};
    if (!file_ || ::fstat(file_.get(), &status) != 0) throw_system_error("open", 0, errno);
    bytes_ = static_cast<std::size_t>(status.st_size);
    map(MAP_SHARED);
    file_.reset();
  }
  SharedMemoryBlock(const SharedMemoryBlock&) = delete;
  SharedMemoryBlock& operator=(const SharedMemoryBlock&) = delete;
  ~SharedMemoryBlock() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  // Frees the pages now, even if others still map them. If that fails, they are freed with the last mapping.
  void release_pages() noexcept {
    static_cast<void>(
        ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes_)));
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  int file() const noexcept { return file_.get(); }

 private:
  void map(int flags) {
    void* const mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, file_.get(), 0);
    if (mapped == MAP_FAILED) throw_system_error("map", bytes_, errno);
    data_ = static_cast<std::byte*>(mapped);
  }

  Descriptor file_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// This rank's blocks whose buffers still exist.
class OwnBlocks {
 public:
  struct Entry {
    std::uint64_t number;
    std::unique_ptr<SharedMemoryBlock> block;
  };

  std::byte* make(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = next_++;
    auto block = std::make_unique<SharedMemoryBlock>(name_of_block(nonce, number), bytes);
    std::byte* const data = block->data();
    blocks_.emplace(data, Entry{number, std::move(block)});
    return data;
  }
  void release(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto entry = blocks_.find(static_cast<const std::byte*>(data));
    entry->second.block->release_pages();
    blocks_.erase(entry);
  }
  std::optional<SharedValues> find(const std::byte* data, std::size_t bytes) const {
    const std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(data);
    if (after == blocks_.begin()) return std::nullopt;
    const auto& [begin, entry] = *--after;
    const auto offset = static_cast<std::size_t>(data - begin);
    if (offset + bytes > entry.block->bytes()) return std::nullopt;
    return SharedValues{.block = entry.number, .file = entry.block->file(), .offset = offset, .bytes = bytes};
  }

  const std::uint64_t nonce = random_nonce();

 private:
  mutable std::mutex mutex_;
  std::uint64_t next_ = kSlotsBlock + 1;
  std::map<const std::byte*, Entry, std::less<>> blocks_;
};

PeerMemory::PeerMemory()
    : own_(std::make_shared<OwnBlocks>()),
      // Other ranks may read the slots after this rank has finished; the pages exist while any rank maps them.
      own_slots_(std::make_unique<SharedMemoryBlock>(name_of_block(own_->nonce, kSlotsBlock),
                                                     kSlots * sizeof(OperationSlot))) {}

PeerMemory::~PeerMemory() = default;

std::unique_ptr<PeerMemory> PeerMemory::open(World& world) {
  std::unique_ptr<PeerMemory> memory;
  try {
    if (world.local_size() == world.size()) memory.reset(new PeerMemory);
  } catch (const Error&) {
    // Some systems and containers do not allow such memory; the communicator then uses other algorithms.
  }
  if (!world.all_true(memory != nullptr)) return nullptr;
  memory->rank_ = world.rank();
  const Peer self{.process = ::getpid(), .slots_file = memory->own_slots_->file(), .nonce = memory->own_->nonce};
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&self, 1)))) {
    Peer& peer = memory->peers_.emplace_back();
    std::memcpy(&peer, bytes.data(), std::min(bytes.size(), sizeof peer));
  }
  const bool opened = memory->map_slots();
  return world.all_true(opened) ? std::move(memory) : nullptr;
}

bool PeerMemory::map_slots() {
  try {
    for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
      const SharedValues slots{.block = kSlotsBlock, .file = peers_[static_cast<std::size_t>(rank)].slots_file};
      slots_.push_back(reinterpret_cast<OperationSlot*>(rank == rank_ ? own_slots_->data() : map(rank, slots)));
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

Buffer PeerMemory::allocate(std::size_t bytes) {
  if (bytes == 0) return allocate_host(0);
  return {own_->make(bytes), bytes, MemorySpace::host, [own = own_](void* data) { own->release(data); }};
}

std::optional<SharedValues> PeerMemory::find(const Tensor& values) const {
  return own_->find(static_cast<const std::byte*>(values.data), values.bytes());
}

OperationSlot& PeerMemory::own_slot(std::uint64_t operation) {
  return slots_[static_cast<std::size_t>(rank_)][operation % kSlots];
}

const OperationSlot& PeerMemory::slot(int rank, std::uint64_t operation) const {
  return slots_[static_cast<std::size_t>(rank)][operation % kSlots];
}

std::byte* PeerMemory::map(int rank, const SharedValues& values) {
  auto& block = mapped_[{rank, values.block}];
  if (!block) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    block = std::make_unique<SharedMemoryBlock>(peer.process, values.file, name_of_block(peer.nonce, values.block));
  }
  if (values.offset + values.bytes > block->bytes()) throw_system_error("use", values.bytes, EINVAL);
  return block->data() + values.offset;
}

}  // namespace tutti
