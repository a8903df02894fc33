#include "gpu_of_rank.hpp"
#include "standin/control.hpp"
#include "train/training_run.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

namespace tutti {
namespace {

struct Launches {
  std::int64_t all = 0;
  std::size_t buckets = 0;
};

// Within one epoch.
Launches launches_of(int steps, std::size_t bucket_bytes) {
  const OwnedData data = open_small("synthetic:160x1x16x16:4");
  const Network network(built_in_model("lenet"), data.pair.train->info().image, data.pair.train->info().classes);
  const TrainerOptions options{.batch_size = 10,
                               .num_parts = test_world().size(),
                               .steps = steps,
                               .bucket_bytes = bucket_bytes,
                               .test_every_epochs = 0};
  const auto communicator = tutti_nccl_library().make_communicator(test_world(), gpu_of_rank());
  Trainer trainer(
      {.backend = backend_of_rank(), .communicator = *communicator, .network = network, .train = *data.pair.train},
      options, {});
  const std::int64_t before = standin::nccl_launches();
  RunObserver none;
  trainer.run(none);
  return {.all = standin::nccl_launches() - before,
          .buckets = trainer.replica().state().ownership().bucket_ends().size()};
}

TEST(NcclLaunches, OfAStepAreOneForEachBucketAndOneForTheCheckOfItsValues) {
  for (const auto& [bucket_bytes, buckets] : {std::pair(std::size_t{16} << 20, 1U), {std::size_t{1} << 10, 5U}}) {
    const Launches few = launches_of(2, bucket_bytes);
    const Launches many = launches_of(6, bucket_bytes);
    EXPECT_EQ(many.buckets, buckets);
    EXPECT_EQ(many.all - few.all, 4 * (buckets + 1));
  }
}

class NcclMemory : public testing::Test {
 protected:
  void sum(Communicator& communicator, const Buffer& memory) {
    communicator.all_reduce(memory.view({1000}, ElementType::f32), *stream_);
    communicator.finish(*stream_);
    stream_->synchronize();
  }
  static std::unique_ptr<Communicator> make() {
    return tutti_nccl_library().make_communicator(test_world(), gpu_of_rank());
  }

  std::unique_ptr<Stream> stream_ = backend_of_rank().make_stream();
};

TEST_F(NcclMemory, IsRegisteredFromItsFirstCollectiveUntilItIsFreed) {
  const auto communicator = make();
  Buffer memory = communicator->allocate(4000);
  const Buffer other = communicator->allocate(4000);
  EXPECT_EQ(standin::nccl_windows(), 0U);
  for (int time = 0; time < 2; ++time) {
    sum(*communicator, memory);
    EXPECT_EQ(standin::nccl_windows(), 1U);
  }
  sum(*communicator, other);
  EXPECT_EQ(standin::nccl_windows(), 2U);
  memory = {};
  EXPECT_EQ(standin::nccl_windows(), 1U);
}

// The stand-in does not free registered memory of a communicator that exists.
TEST_F(NcclMemory, MayOutliveItsCommunicator) {
  for (const bool aborted : {false, true}) {
    auto communicator = make();
    Buffer memory = communicator->allocate(4000);
    sum(*communicator, memory);
    if (aborted) communicator->abort();
    if (!aborted) communicator.reset();
    EXPECT_EQ(standin::nccl_windows(), 0U);
    memory = {};
    test_world().barrier();
  }
}

// The others do not wait for the rank that cannot.
TEST_F(NcclMemory, IsRegisteredOnNoRankIfOneCannot) {
  for (const auto& [fault, first] : {std::pair("windowless 1 -1", 1), {"windowless -1 -1", 0}}) {
    ::setenv("TUTTI_NCCL_FAULT", fault, 1);
    std::string warning;
    NcclOptions options = gpu_of_rank();
    options.warn = [&](const std::string& line) { warning = line; };
    const auto communicator = tutti_nccl_library().make_communicator(test_world(), options);
    ::unsetenv("TUTTI_NCCL_FAULT");
    const auto expected = fmt::format("NCCL does not register memory, so collectives copy it: rank {} on ", first);
    EXPECT_EQ(warning.starts_with(expected), test_world().rank() == 0) << warning;
    const Buffer memory = communicator->allocate(4000);
    sum(*communicator, memory);
    EXPECT_EQ(standin::nccl_windows(), 0U);
  }
}

// Else an abort might never return.
TEST_F(NcclMemory, IsNotRegisteredWithAnNcclThatCannotAbortIt) {
  ::setenv("TUTTI_STANDIN_NCCL", "22809", 1);
  std::string warning;
  NcclOptions options = gpu_of_rank();
  options.warn = [&](const std::string& line) { warning = line; };
  const auto communicator = tutti_nccl_library().make_communicator(test_world(), options);
  const Buffer memory = communicator->allocate(4000);
  sum(*communicator, memory);
  EXPECT_EQ(standin::nccl_windows(), 0U);
  const char* const expected =
      "NCCL does not register memory, so collectives copy it: NCCL 2.28.9 cannot abort collectives on registered "
      "memory, NCCL 2.29.7 can";
  EXPECT_EQ(warning, test_world().rank() == 0 ? expected : "");
  ::unsetenv("TUTTI_STANDIN_NCCL");
}

}  // namespace
}  // namespace tutti
