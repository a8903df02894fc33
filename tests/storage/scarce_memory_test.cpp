// Saves with a limited address space (ulimit -v) may fail, bytes never crash the process or later saves.

#include "tutti/base/error.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/storage/checkpoint_writer.hpp"

#include "storage/sample_state.hpp"
#include "support/scratch_folder.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

constexpr int kNoSaveFailed = 1;

void limit_address_space(rlim_t bytes) {
  const rlimit limit{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

rlim_t address_space() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

// Allocates all memory except about `spare` bytes.
std::vector<void*> take_memory(std::size_t spare) {
  constexpr std::size_t kMost = 1 << 20;
  constexpr std::size_t kSmallest = 1 << 10;
  std::vector<void*> taken;
  taken.reserve(kMost);
  limit_address_space(address_space() + spare);
  for (std::size_t bytes = 1 << 16; bytes >= kSmallest; bytes /= 2) {
    while (taken.size() < kMost) {
      void* const piece = std::malloc(bytes);
      if (piece == nullptr) break;
      taken.push_back(piece);
    }
  }
  for (std::size_t given = 0; given < spare && !taken.empty(); given += kSmallest) {
    std::free(taken.back());
    taken.pop_back();
  }
  return taken;
}

TrainState wide_state(std::int64_t step) {
  TrainState state = state_at(step);
  for (int i = 0; i < 100; ++i) {
    state.parameters.push_back(sample_array("wide" + std::to_string(i) + "/weight", {1024}, 1));
  }
  return state;
}

[[noreturn]] void save_without_memory(const std::string& folder, std::size_t left) {
  const CheckpointStore store(folder);
  std::vector<std::byte> room;
  const TrainState first = wide_state(50);
  const TrainState second = wide_state(51);
  static_cast<void>(store.save(first, {}, &room));
  std::vector<void*> taken = take_memory(left);
  int failed = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      static_cast<void>(store.save(second, {}, &room));
    } catch (const std::exception&) {
      ++failed;
    }
  }
  limit_address_space(RLIM_INFINITY);
  for (void* const piece : taken) std::free(piece);
  static_cast<void>(store.save(second, {}, &room));
  static_cast<void>(load_checkpoint(store.path_of(51)));
  std::exit(failed > 0 ? 0 : kNoSaveFailed);  // NOLINT(concurrency-mt-unsafe): runs HDF5's exit handlers
}

// Leaves less address space than the stack of a thread.
[[noreturn]] void save_without_thread(const std::string& folder) {
  CheckpointWriter writer(CheckpointStore(folder), {.keep_checkpoints = 2});
  TrainState state = state_at(50);
  limit_address_space(address_space() + (1 << 20));
  writer.save(std::move(state));
  limit_address_space(RLIM_INFINITY);
  const auto reports = writer.take_reports();
  const bool was_reported = reports.size() == 1 && reports.front().failure.find("thread") != std::string::npos;
  writer.finish();
  static_cast<void>(load_checkpoint(CheckpointStore(folder).path_of(50)));
  std::exit(was_reported && writer.newest_is_saved() ? 0 : 1);  // NOLINT(concurrency-mt-unsafe): as above
}

TEST(ScarceMemory, ThatAllowsNoThreadCostsACheckpointAndNotTheRun) {
  const ScratchFolder folder;
  EXPECT_EXIT(save_without_thread(folder.path()), testing::ExitedWithCode(0), "");
}

TEST(ScarceMemory, FailsASaveAndNeverTheOnesAfterIt) {
  for (const std::size_t left : {0, 20, 100, 500}) {
    const ScratchFolder folder;
    SCOPED_TRACE(testing::Message() << left << " KiB are left");
    EXPECT_EXIT(save_without_memory(folder.path(), left << 10), testing::ExitedWithCode(0), "");
  }
}

}  // namespace
}  // namespace tutti
