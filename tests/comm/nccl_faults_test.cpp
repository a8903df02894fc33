#include "tutti/comm/nccl_library.hpp"

#include "gpu_of_rank.hpp"
#include "summed_values.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr std::size_t kSums = 5;
constexpr int kFaultySum = 3;

class NcclFaults : public testing::Test {
 protected:
  ~NcclFaults() override { ::unsetenv("TUTTI_NCCL_FAULT"); }

  using Enqueue = void (*)(Communicator& communicator, const Tensor& values, Stream& stream);
  static void all_reduce(Communicator& communicator, const Tensor& values, Stream& stream) {
    communicator.all_reduce(values, stream);
  }

  // Enqueues a few sums, waits for them like the trainer, and returns the error, if any.
  static std::optional<Error> train(const std::string& fault, double deadline_seconds, Enqueue enqueue = all_reduce) {
    if (!fault.empty()) ::setenv("TUTTI_NCCL_FAULT", fmt::format("{} 1 {}", fault, kFaultySum).c_str(), 1);
    NcclOptions options = gpu_of_rank();
    options.deadline_seconds = deadline_seconds;
    const auto communicator = tutti_nccl_library().make_communicator(test_world(), options);
    const auto stream = backend_of_rank().make_stream();
    stream->set_wait_callback([&] { communicator->progress(); });
    const Buffer values = communicator->allocate(std::size_t{4} * 1000 * kSums);
    try {
      for (std::size_t i = 0; i < kSums; ++i) {
        enqueue(*communicator, values.view({1000}, ElementType::f32, i * 4000), *stream);
      }
      communicator->finish(*stream);
      stream->synchronize();
      return std::nullopt;
    } catch (const Error& error) {
      return error;
    }
  }

  static std::string place() { return fmt::format("rank {} on {} ", test_world().rank(), test_world().host()); }
};

TEST_F(NcclFaults, DoNotOccurUnlessInjected) { EXPECT_FALSE(train("", 60)); }

TEST_F(NcclFaults, OfARankThatStallsEndAllRanksAtTheDeadline) {
  const auto error = train("stall", 0.5);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->exit_status(), ExitStatus::hang);
  EXPECT_TRUE(std::string(error->what()).starts_with(place() + "gave up after 0.5 s in all_reduce #3 (4000 bytes): "))
      << error->what();
  EXPECT_NE(std::string(error->what()).find("NCCL_SOCKET_IFNAME and NCCL_IB_HCA"), std::string::npos) << error->what();
  test_world().barrier();
}

// A reduce_scatter_gather is two NCCL operations.
TEST_F(NcclFaults, OfARankThatStallsEndAllRanksInTheirSharedSums) {
  const auto error = train("stall", 0.5, [](Communicator& communicator, const Tensor& values, Stream& stream) {
    std::vector<std::int64_t> bounds;
    for (int rank = 0; rank <= communicator.size(); ++rank)
      bounds.push_back(values.elements() * rank / communicator.size());
    communicator.reduce_scatter_gather({.values = values, .bounds = bounds, .results = values}, stream);
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->exit_status(), ExitStatus::hang);
  EXPECT_NE(std::string(error->what()).find("0.5 s in reduce_scatter_gather #2 (4000 bytes): "), std::string::npos)
      << error->what();
  test_world().barrier();
}

// The other ranks have no operation to wait for.
TEST_F(NcclFaults, OfARankThatStallsEndItselfAndTheFirstInCentralSums) {
  const auto error = train("stall", 0.5, [](Communicator& communicator, const Tensor& values, Stream& stream) {
    communicator.reduce_to_root(values, stream);
  });
  if (test_world().rank() < 2) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->exit_status(), ExitStatus::hang);
    EXPECT_NE(std::string(error->what()).find("reduce_to_root #3 (4000 bytes)"), std::string::npos) << error->what();
  }
  test_world().barrier();
}

TEST_F(NcclFaults, OfARankThatFailsEndAllRanksAtOnce) {
  const auto error = train("fail", 3600);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->source(), ErrorSource::nccl);
  EXPECT_EQ(error->exit_status(), ExitStatus::internal);
  const std::string message = error->what();
  EXPECT_TRUE(message.starts_with(place() + "failed in all_reduce #")) << message;
  const char* const cause = test_world().rank() == 1 ? "injected failure" : "another rank failed";
  EXPECT_THAT(message, mentions(cause));
  test_world().barrier();
}

TEST_F(NcclFaults, OfARankThatCannotConnectAreFoundByAll) {
  NcclOptions options{.device = 0, .deadline_seconds = 60};
  const Error error = thrown_by([&] { tutti_nccl_library().make_communicator(test_world(), options); });
  EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
  EXPECT_THAT(error.what(), mentions("Duplicate GPU detected"));
}

TEST_F(NcclFaults, AreRefusedWhereSharingWouldHang) {
  ::setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  const NcclOptions options{.share_device = true};
  const Error error = thrown_by([&] { tutti_nccl_library().make_communicator(test_world(), options); });
  ::unsetenv("CUDA_LAUNCH_BLOCKING");
  EXPECT_EQ(error.exit_status(), ExitStatus::usage);
}

}  // namespace
}  // namespace tutti
