#include "tutti/comm/nccl_library.hpp"

#include "gpu_of_rank.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace tutti {
namespace {

// Long enough for NCCL to connect ranks that share a device; the stand-in is faster.
const double kDeadlineSeconds = std::getenv("TUTTI_STANDIN_DEVICES") == nullptr ? 6 : 2;

class LateRanks : public testing::Test {
 protected:
  static std::unique_ptr<Communicator> make(double deadline_seconds) {
    NcclOptions options = gpu_of_rank();
    options.deadline_seconds = deadline_seconds;
    return tutti_nccl_library().make_communicator(test_world(), options);
  }

  std::unique_ptr<Stream> stream_ = backend_of_rank().make_stream();
};

// One rank never enqueues a sum. The others must fail within the deadline and be able to free their memory.
TEST_F(LateRanks, AreGivenUpOnAfterTheDeadline) {
  World& world = test_world();
  auto communicator = make(kDeadlineSeconds);
  const Buffer values = communicator->allocate(4 * 1000);
  const bool late = world.rank() == world.size() - 1;
  if (!late) {
    stream_->set_wait_callback([&] { communicator->progress(); });
    const auto sum_and_wait = [&] {
      communicator->all_reduce(values.view({1000}, ElementType::f32), *stream_);
      communicator->finish(*stream_);
      stream_->synchronize();
    };
    const Error error = thrown_by(sum_and_wait);
    EXPECT_EQ(error.exit_status(), ExitStatus::hang);
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with(fmt::format("rank {} on {} gave up after {:g} s in all_reduce #1 (4000 bytes)",
                                                world.rank(), world.host(), kDeadlineSeconds)))
        << message;
    EXPECT_NE(message.find("--stall-timeout"), std::string::npos);
    // Work that waits on this device ends, without any guarantee about its result.
    EXPECT_FALSE(communicator->progress());
    stream_->synchronize();
    EXPECT_EQ(thrown_by([&] { communicator->finish(*stream_); }).exit_status(), ExitStatus::hang);
    stream_->set_wait_callback({});
  }
  world.barrier();
}

// Meanwhile no call of the host may wait for the device inside the driver.
TEST_F(LateRanks, AreGivenUpOnByARankThatAllocatesAndCopiesToTheHost) {
  World& world = test_world();
  auto communicator = make(kDeadlineSeconds);
  const Buffer values = communicator->allocate(4 * 1000);
  std::vector<float> host(1000);
  if (world.rank() != world.size() - 1) {
    stream_->set_wait_callback([&] { communicator->progress(); });
    const auto sum_and_copy = [&] {
      const Tensor sums = values.view({1000}, ElementType::f32);
      communicator->all_reduce(sums, *stream_);
      communicator->finish(*stream_);
      const Buffer more = backend_of_rank().allocate(100);
      backend_of_rank().copy(*stream_, {host.data(), sums.shape, ElementType::f32, MemorySpace::host}, sums);
    };
    EXPECT_EQ(thrown_by(sum_and_copy).exit_status(), ExitStatus::hang);
    stream_->set_wait_callback({});
  }
  world.barrier();
}

TEST_F(LateRanks, DoNotBlockPeersWhenTheyAbandonOrDestroyTheirCommunicator) {
  World& world = test_world();
  const bool late = world.rank() == world.size() - 1;
  for (const bool abandoned : {true, false}) {
    auto communicator = make(300);
    {
      const Buffer values = communicator->allocate(4 * 1000);
      try {
        // With a shared device a sum would block; the exception is thrown before.
        if (!late && !gpu_of_rank().share_device) {
          communicator->all_reduce(values.view({1000}, ElementType::f32), *stream_);
        }
        throw Error(ErrorSource::internal, "something else failed");
      } catch (const Error&) {
        if (abandoned) communicator->abort();
      }
      if (!abandoned) communicator.reset();
      // The memory is freed here, which waits for the device.
    }
    stream_->synchronize();
    world.barrier();
  }
}

}  // namespace
}  // namespace tutti
