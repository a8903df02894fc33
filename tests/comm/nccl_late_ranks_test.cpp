#include "tutti/comm/nccl_library.hpp"

#include "gpu_of_rank.hpp"
#include "support/reports.hpp"
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

// Ranks that have connected in a first sum of these values: there the host waits inside NCCL.
struct Connected {
  explicit Connected(double deadline_seconds) {
    NcclOptions options = gpu_of_rank();
    options.deadline_seconds = deadline_seconds;
    communicator = tutti_nccl_library().make_communicator(test_world(), options);
    memory = communicator->allocate(4 * 1000);
    communicator->all_reduce(values(), *stream);
    communicator->finish(*stream);
    stream->synchronize();
  }

  Tensor values() const { return memory.view({1000}, ElementType::f32); }

  std::unique_ptr<Stream> stream = backend_of_rank().make_stream();
  std::unique_ptr<Communicator> communicator;
  Buffer memory;
};

// One rank never enqueues a sum. The others must fail within the deadline and be able to free their memory.
TEST(LateRanks, AreGivenUpOnAfterTheDeadline) {
  World& world = test_world();
  const Connected ranks(kDeadlineSeconds);
  Communicator& communicator = *ranks.communicator;
  Stream& stream = *ranks.stream;
  const bool late = world.rank() == world.size() - 1;
  if (!late) {
    stream.set_wait_callback([&] { communicator.progress(); });
    const auto sum_and_wait = [&] {
      communicator.all_reduce(ranks.values(), stream);
      communicator.finish(stream);
      stream.synchronize();
    };
    const Error error = thrown_by(sum_and_wait);
    EXPECT_EQ(error.exit_status(), ExitStatus::hang);
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with(fmt::format("rank {} on {} gave up after {:g} s in all_reduce #2 (4000 bytes)",
                                                world.rank(), world.host(), kDeadlineSeconds)))
        << message;
    EXPECT_THAT(message, mentions("--stall-timeout"));
    // Work that waits on this device ends, without any guarantee about its result.
    EXPECT_FALSE(communicator.progress());
    stream.synchronize();
    EXPECT_EQ(thrown_by([&] { communicator.finish(stream); }).exit_status(), ExitStatus::hang);
    stream.set_wait_callback({});
  }
  world.barrier();
}

// Meanwhile no call of the host may wait for the device inside the driver.
TEST(LateRanks, AreGivenUpOnByARankThatAllocatesAndCopiesToTheHost) {
  World& world = test_world();
  const Connected ranks(kDeadlineSeconds);
  Communicator& communicator = *ranks.communicator;
  Stream& stream = *ranks.stream;
  std::vector<float> host(1000);
  if (world.rank() != world.size() - 1) {
    stream.set_wait_callback([&] { communicator.progress(); });
    const auto sum_and_copy = [&] {
      const Tensor sums = ranks.values();
      communicator.all_reduce(sums, stream);
      communicator.finish(stream);
      const Buffer more = backend_of_rank().allocate(100);
      backend_of_rank().copy(stream, {host.data(), sums.shape, ElementType::f32, MemorySpace::host}, sums);
    };
    EXPECT_EQ(thrown_by(sum_and_copy).exit_status(), ExitStatus::hang);
    stream.set_wait_callback({});
  }
  world.barrier();
}

TEST(LateRanks, DoNotBlockPeersWhenTheyAbandonOrDestroyTheirCommunicator) {
  World& world = test_world();
  const bool late = world.rank() == world.size() - 1;
  for (const bool abandoned : {true, false}) {
    Connected ranks(300);
    try {
      // With a shared device a sum would block; the exception is thrown before.
      if (!late && !gpu_of_rank().share_device) ranks.communicator->all_reduce(ranks.values(), *ranks.stream);
      throw Error(ErrorSource::internal, "something else failed");
    } catch (const Error&) {
      if (abandoned) ranks.communicator->abort();
    }
    if (!abandoned) ranks.communicator.reset();
    ranks.memory = {};  // waits for the device
    ranks.stream->synchronize();
    world.barrier();
  }
}

}  // namespace
}  // namespace tutti
