#include "tutti/backend/cuda_library.hpp"
#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(CudaTimedEvents, MeasureTheTimeBetweenPointsOfAStream) {
  const auto backend = tutti_cuda_library().make_backend({});
  const auto stream = backend->make_stream();
  const auto before = backend->make_timed_event();
  const auto after = backend->make_timed_event();
  ASSERT_NE(before, nullptr);
  const Buffer memory = backend->allocate(std::size_t{1} << 22);
  backend->begin_range("filling");
  stream->record(*before);
  backend->fill_zero(*stream, memory.view(Shape{1 << 20}, ElementType::f32));
  stream->record(*after);
  stream->await(*after);
  backend->begin_range("waiting");
  EXPECT_TRUE(before->reached());
  EXPECT_GT(after->seconds_since(*before), 0);
  EXPECT_LT(after->seconds_since(*before), 60);
  EXPECT_EQ(before->seconds_since(*before), 0);
}

TEST(CudaTimedEvents, RefuseEventsWithoutTiming) {
  const auto backend = tutti_cuda_library().make_backend({});
  const auto stream = backend->make_stream();
  const auto plain = backend->make_event();
  stream->record(*plain);
  stream->synchronize();
  EXPECT_THROW(plain->seconds_since(*plain), Error);
}

}  // namespace
}  // namespace tutti
