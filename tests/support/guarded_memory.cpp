// A library that gives the program that preloads it guarded memory: every aligned block lies between pages that nobody
// may touch. Code that reads or writes outside of a block ends at once, generated code included, which no sanitizer
// sees. Blocks are filled with NaN and never used again. A block ends at the pages behind it or, with
// TUTTI_GUARD=front, begins at those before it; the bytes on its other side must be unchanged when it is freed.

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr std::size_t kGuard = std::size_t{1} << 16;  // the largest page
constexpr std::size_t kRoom = std::size_t{1} << 36;   // of addresses, for all blocks
constexpr unsigned char kFill = 0xFF;

struct Block {
  unsigned char* pages;
  unsigned char* pages_end;
  unsigned char* data_end;
};

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* reserve(std::size_t bytes, int protection) {
  void* const reserved = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) std::abort();
  return reserved;
}

// All addresses of blocks, and of each page on which a block begins, its block.
struct Memory {
  std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  bool front = std::getenv("TUTTI_GUARD") != nullptr && std::string_view(std::getenv("TUTTI_GUARD")) == "front";
  unsigned char* begin = static_cast<unsigned char*>(reserve(kRoom, PROT_NONE));
  Block* blocks = static_cast<Block*>(reserve(kRoom / page * sizeof(Block), PROT_READ | PROT_WRITE));
  std::atomic<std::size_t> used{0};

  bool has(const void* data) const {
    const auto* const address = static_cast<const unsigned char*>(data);
    return address >= begin && address < begin + kRoom;
  }
  Block& block_at(const void* data) {
    return blocks[static_cast<std::size_t>(static_cast<const unsigned char*>(data) - begin) / page];
  }
};

Memory& memory() {
  static Memory memory;
  return memory;
}

void* allocate(std::size_t alignment, std::size_t bytes) {
  const std::size_t whole = round_up(std::max<std::size_t>(bytes, 1), std::max(alignment, sizeof(void*)));
  const std::size_t page = memory().page;
  const std::size_t in_pages = round_up(whole, page);
  const std::size_t offset = memory().used.fetch_add(in_pages + kGuard) + kGuard;
  unsigned char* const pages = memory().begin + offset;
  if (alignment > page || offset + in_pages + kGuard > kRoom ||
      ::mprotect(pages, in_pages, PROT_READ | PROT_WRITE) != 0) {
    errno = ENOMEM;
    return nullptr;
  }
  std::memset(pages, kFill, in_pages);
  unsigned char* const data = memory().front ? pages : pages + in_pages - whole;
  memory().block_at(data) = {pages, pages + in_pages, data + bytes};
  return data;
}

[[noreturn]] void refuse(std::string_view reason) {
  if (::write(STDERR_FILENO, reason.data(), reason.size()) < 0) std::_Exit(1);
  std::abort();
}

void release(unsigned char* data) {
  const Block block = memory().block_at(data);
  const auto is_untouched = [](unsigned char byte) { return byte == kFill; };
  if (!std::all_of(block.pages, data, is_untouched)) refuse("guarded_memory: bytes before a block were written\n");
  if (!std::all_of(block.data_end, block.pages_end, is_untouched)) {
    refuse("guarded_memory: bytes behind a block were written\n");
  }
  const auto bytes = static_cast<std::size_t>(block.pages_end - block.pages);
  ::madvise(block.pages, bytes, MADV_DONTNEED);
  ::mprotect(block.pages, bytes, PROT_NONE);
}

}  // namespace

extern "C" {

void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept { return allocate(alignment, bytes); }
void* memalign(std::size_t alignment, std::size_t bytes) noexcept { return allocate(alignment, bytes); }
int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) noexcept {
  *result = allocate(alignment, bytes);
  return *result == nullptr ? ENOMEM : 0;
}
void free(void* data) noexcept {
  if (memory().has(data)) return release(static_cast<unsigned char*>(data));
  static auto* const next = reinterpret_cast<void (*)(void*)>(::dlsym(RTLD_NEXT, "free"));
  next(data);
}
}
