#pragma once
// The first images of each class of CIFAR-10, as a set of its own that trains in seconds: for a first try, for lessons,
// and for tests. Accuracy on it says nothing about the whole set.

#include <string>
#include <string_view>

namespace tutti {

struct SmallSet {
  std::string_view name;
  std::string_view of;  // the published set that it is taken from
  int train_images_per_class = 0;
  int test_images_per_class = 0;
};

inline constexpr SmallSet kTinyCifar{
    .name = "cifar10-tiny", .of = "cifar10", .train_images_per_class = 100, .test_images_per_class = 10};

// From one folder of CIFAR's binary batches to another, which is there, in the order of the source; the names of the
// classes come along. Throws input errors for a source that has too few, io and save errors.
void write_small_set(const SmallSet& set, const std::string& from, const std::string& to);

}  // namespace tutti
