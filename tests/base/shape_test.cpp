#include "tutti/base/shape.hpp"

#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Shape, CountsElementsAndPrintsExtents) {
  const Shape shape{64, 1, 28, 28};
  EXPECT_EQ(shape.elements(), 64 * 784);
  EXPECT_EQ(shape.text(), "64x1x28x28");
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{3, 0}).elements(), 0);
}

TEST(Shape, ChangesTheBatchOnly) {
  const Shape shape{64, 3, 5};
  EXPECT_EQ(shape.with_first(2), (Shape{2, 3, 5}));
  EXPECT_EQ(shape.without_first(), (Shape{3, 5}));
  EXPECT_EQ((Shape{3, 5}).batch_of(7), (Shape{7, 3, 5}));
}

TEST(Shape, RefusesSizesBeyondAnyMemory) {
  EXPECT_THROW((Shape{1ll << 40, 1ll << 40}), Error);
  EXPECT_THROW((Shape{-1}), Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1}), Error);
  EXPECT_THROW((Shape{2, 3})[2], Error);
}

}  // namespace
}  // namespace tutti
