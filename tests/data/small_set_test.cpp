#include "tutti/data/small_set.hpp"

#include "tutti/data/published_set.hpp"

#include "data/written_sets.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::Bytes;
using testing::cifar_file;
using testing::contents_of;
using ::testing::HasSubstr;
using testing::open_named;
using testing::TemporaryFolder;

constexpr SmallSet kTwo{.name = "two", .of = "cifar10", .train_images_per_class = 2, .test_images_per_class = 1};

// Labels 0 .. 9, so many times over.
Bytes rounds(int count) {
  Bytes labels;
  for (int i = 0; i < count * 10; ++i) labels.push_back(static_cast<std::uint8_t>(i % 10));
  return labels;
}

TEST(SmallSet, HoldsTheFirstOfEachClassInTheOrderOfTheSource) {
  const TemporaryFolder folder;
  folder.write("in/data_batch_1.bin", cifar_file({3, 3, 3, 0}));
  folder.write("in/data_batch_2.bin", cifar_file(rounds(2), 100));
  folder.write("in/test_batch.bin", cifar_file(rounds(3), 50));
  const std::string names = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n";
  folder.write("in/batches.meta.txt", {names.begin(), names.end()});
  std::filesystem::create_directory(folder.path() / "out");
  write_small_set(kTwo, folder.text() + "/in", folder.text() + "/out");

  const OwnedData data = open_named(folder.text() + "/out");
  const auto train = contents_of(*data.pair.train);
  EXPECT_EQ(train.labels, (std::vector<std::int32_t>{3, 3, 0, 0, 1, 2, 4, 5, 6, 7, 8, 9, 1, 2, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(train.images[0], 0);
  EXPECT_EQ(train.images[2 * 3072], 3);
  EXPECT_EQ(train.images[3 * 3072], 100);
  EXPECT_EQ(contents_of(*data.pair.test).labels, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(data.pair.train->info().class_names[9], "j");
}

TEST(SmallSet, RefusesASourceThatHasTooFew) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "out");
  const auto refusal = [&] {
    return std::string(thrown_by([&] { write_small_set(kTwo, folder.text(), folder.text() + "/out"); }).what());
  };
  EXPECT_THAT(refusal(), HasSubstr("fewer than 2 images of class 0 in its data_batch*.bin"));
  folder.write("data_batch_1.bin", cifar_file(rounds(1)));
  EXPECT_THAT(refusal(), HasSubstr("fewer than 2 images of class 0"));
  folder.write("data_batch_1.bin", cifar_file(rounds(2)));
  EXPECT_THAT(refusal(), HasSubstr("fewer than 1 images of class 0 in its test_batch*.bin"));
}

TEST(PublishedSet, KnowsEveryFileByItsLengthAndSum) {
  for (const char* name : {"mnist", "fashion-mnist", "cifar10"}) {
    const PublishedSet set = published_set(name);
    EXPECT_EQ(set.name, name);
    EXPECT_GE(set.places.size(), 2u) << "one may be out of reach";
    for (const std::string& place : set.places) {
      EXPECT_TRUE(place.starts_with("https://") && place.ends_with("/")) << place;
    }
    for (const PublishedFile& file : set.downloads) {
      EXPECT_GT(file.bytes, 0);
      EXPECT_EQ(file.sha256.size(), 64u) << file.name;
    }
  }
  EXPECT_EQ(kTinyCifar.of, published_set("cifar10").name);
  EXPECT_EQ(kTinyCifar.name, kFetchedNames.back());
  const Error error = thrown_by([] { published_set("imagenet"); });
  EXPECT_EQ(error.source(), ErrorSource::usage);
  EXPECT_THAT(error.what(), HasSubstr("'imagenet': give one of mnist, fashion-mnist, cifar10, cifar10-tiny"));
}

}  // namespace
}  // namespace tutti
