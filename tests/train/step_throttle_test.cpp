#include "train/step_throttle.hpp"

#include "support/late_device.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing_support::LateDevice;
using testing_support::MemoryBackend;

TEST(StepThrottle, LetsTheHostBeAtMostNStepsAhead) {
  for (const int steps_ahead : {0, 1, 2}) {
    int furthest = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
      LateDevice device(seed);
      const auto stream = device.make_stream();
      StepThrottle throttle(device, *stream, steps_ahead);
      int done = 0;
      for (int step = 1; step <= 10; ++step) {
        throttle.begin_step();
        device.enqueue(*stream, [&done] { ++done; });
        throttle.end_step();
        ASSERT_GE(done, step - steps_ahead);
        furthest = std::max(furthest, step - done);
      }
      throttle.synchronize();
      EXPECT_EQ(done, 10);
    }
    EXPECT_EQ(furthest, steps_ahead);
  }
}

TEST(StepThrottle, CountsNoTimeBetweenSteps) {
  MemoryBackend host;
  const auto stream = host.make_stream();
  StepThrottle throttle(host, *stream, 1);
  EXPECT_EQ(throttle.synchronize(), 0);
  throttle.begin_step();
  throttle.end_step();
  throttle.begin_step();
  throttle.end_step();
  EXPECT_GT(throttle.synchronize(), 0);
  EXPECT_EQ(throttle.synchronize(), 0);
}

}  // namespace
}  // namespace tutti
