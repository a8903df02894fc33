#include "processors.hpp"

#include "tutti/base/error.hpp"

#include "support/mpi_world.hpp"
#include "support/thrown.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace tutti {
namespace {

// How many ranks have done their work, where all see it.
class EndTogether : public testing::Test {
 protected:
  EndTogether() {
    if (world_.rank() == 0) done_->store(0);
    world_.barrier();
  }
  ~EndTogether() override { world_.barrier(); }
  void work() { ++*done_; }

  World& world_ = test_world();
  Buffer memory_ = world_.node_memory(sizeof(std::atomic<int>));
  std::atomic<int>* done_ = static_cast<std::atomic<int>*>(memory_.data());
};

TEST_F(EndTogether, LeavesWhenAllRanksHaveDoneTheirWork) {
  end_together(world_, [&] { work(); });
  EXPECT_EQ(done_->load(), world_.size());
}

TEST_F(EndTogether, LeavesWithAnErrorOfAllRanksWhenAllHaveMetIt) {
  const Error error = thrown_by([&] {
    end_together(world_, [&] {
      work();
      throw Error(ErrorSource::not_finite, "the loss is not finite").on_all_ranks();
    });
  });
  EXPECT_EQ(error.source(), ErrorSource::not_finite);
  EXPECT_EQ(done_->load(), world_.size());
}

TEST_F(EndTogether, DoesNotKeepARankThatFailsAlone) {
  if (world_.rank() > 0) return;
  EXPECT_EQ(thrown_by([&] { end_together(world_, [] { throw Error(ErrorSource::io, "cannot read"); }); }).source(),
            ErrorSource::io);
}

}  // namespace
}  // namespace tutti
