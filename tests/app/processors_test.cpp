#include "processors.hpp"

#include "tutti/base/error.hpp"

#include "support/mpi_world.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tutti {
namespace {

namespace fs = std::filesystem;

TEST(CudaLoader, LooksNextToLibtutti) {
  const fs::path path = cuda_library_path();
  EXPECT_EQ(path.filename(), "libtutti_cuda.so");
  EXPECT_TRUE(fs::exists(path.parent_path() / "libtutti.so")) << path;
}

bool has_mapped(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  return text.find(library) != std::string::npos;
}

// CUDA's libraries need more address space than some limits allow.
TEST(CudaLoader, OpensNothingOnAMachineWithoutASignOfAGpu) {
  const ScratchFolder empty;
  const GpuFacts facts = gpu_facts(Device::automatic, Machine(empty.path()));
  const bool has_driver = has_mapped("libcuda.so");
  EXPECT_EQ(has_mapped("/libtutti_cuda.so"), has_driver && fs::exists(cuda_library_path()));
  if (!has_driver) {
    EXPECT_FALSE(facts.inventory.unavailable_reason.empty());
    EXPECT_FALSE(facts.inventory.failed);
  }
}

TEST(CudaLoader, NamesTheMissingLibraryTheReasonAndTheRemedy) {
  EXPECT_THAT(thrown_by([] { load_cuda_libraries("/nowhere/libtutti_cuda.so"); }),
              reports(ErrorSource::usage, "cannot open libtutti_cuda.so",
                      "/nowhere/libtutti_cuda.so: cannot open shared object file", "--device cpu"));
}

TEST(CudaLoader, RefusesALibraryWithOtherSymbols) {
  const std::string other = (fs::path(cuda_library_path()).parent_path() / "libtutti.so").string();
  EXPECT_THAT(thrown_by([&] { load_cuda_libraries(other); }),
              reports(ErrorSource::usage, other, "tutti_cuda_library", "install Tutti again"));
}

TEST(CudaLoader, RefusesALibraryOfAnotherBuild) {
  EXPECT_THAT(thrown_by([] { load_cuda_libraries(TUTTI_OUTDATED_LIBRARY); }),
              reports(ErrorSource::usage,
                      fmt::format("interface version is {}, this program's {}", kCudaInterfaceVersion - 1,
                                  kCudaInterfaceVersion),
                      "together"));
}

// Counts the ranks that have done their work, in memory that all ranks share.
class RunThenBarrier : public testing::Test {
 protected:
  RunThenBarrier() {
    if (world_.rank() == 0) done_->store(0);
    world_.barrier();
  }
  ~RunThenBarrier() override { world_.barrier(); }
  void work() { ++*done_; }

  World& world_ = test_world();
  Buffer memory_ = world_.node_memory(sizeof(std::atomic<int>));
  std::atomic<int>* done_ = static_cast<std::atomic<int>*>(memory_.data());
};

TEST_F(RunThenBarrier, ReturnsWhenAllRanksHaveDoneTheirWork) {
  run_then_barrier(world_, [&] { work(); });
  EXPECT_EQ(done_->load(), world_.size());
}

TEST_F(RunThenBarrier, ThrowsAnErrorOfAllRanksWhenAllHaveReachedIt) {
  const Error error = thrown_by([&] {
    run_then_barrier(world_, [&] {
      work();
      throw Error(ErrorSource::not_finite, "the loss is not finite").on_all_ranks();
    });
  });
  EXPECT_EQ(error.source(), ErrorSource::not_finite);
  EXPECT_EQ(done_->load(), world_.size());
}

TEST_F(RunThenBarrier, DoesNotBlockARankThatFailsAlone) {
  if (world_.rank() > 0) return;
  EXPECT_EQ(thrown_by([&] { run_then_barrier(world_, [] { throw Error(ErrorSource::io, "cannot read"); }); }).source(),
            ErrorSource::io);
}

}  // namespace
}  // namespace tutti
