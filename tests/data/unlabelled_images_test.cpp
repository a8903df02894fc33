#include "tutti/base/error.hpp"
#include "tutti/data/open_data.hpp"

#include "data/written_images.hpp"
#include "data/written_sets.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using testing_support::Bytes;
using testing_support::dot;
using testing_support::gradient;
using testing_support::png_of;

OwnedData open_images(std::vector<std::string> images, bool skip_bad = false) {
  return open_data({.skip_bad_images = skip_bad, .images = std::move(images)});
}

std::vector<std::string> files_of(const Dataset& data) {
  std::vector<std::string> files;
  for (std::int64_t i = 0; i < data.info().samples; ++i) files.push_back(data.file_of(i));
  return files;
}

TEST(UnlabelledImages, AreInTheOrderOfTheWordsAndOfTheNamesInFolders) {
  const ScratchFolder folder;
  for (const char* name : {"b.png", "a.PNG", "deep/er/c.png", "deep/d.png", ".hidden/e.png"})
    folder.write(name, dot(1));
  folder.write("odd", dot(9));
  folder.write("table.csv", {'x'});
  std::filesystem::create_directory_symlink(folder.path(), folder.file("loop"));
  const std::string in = folder.path();
  const OwnedData data = open_images({in + "/odd", in});
  EXPECT_THAT(files_of(*data.pair.train),
              ElementsAre(in + "/odd", in + "/a.PNG", in + "/b.png", in + "/deep/d.png", in + "/deep/er/c.png"));
  EXPECT_FALSE(data.pair.train->info().labelled);
  EXPECT_EQ(data.pair.train->info().image, (Shape{1, 2, 2}));
  EXPECT_EQ(data.pair.test, nullptr);
  EXPECT_THAT(data.pair.notes, ElementsAre(mentions("3 entries ", "skipped: first " + in + "/odd")));
  SampleBatch batch;
  data.pair.train->read(std::vector<std::int64_t>{0}, batch);
  EXPECT_EQ(batch.images[0].pixels[0], 9);
}

TEST(UnlabelledImages, ThatAreBadAreReportedWithNamePositionAndReason) {
  const ScratchFolder folder;
  for (const char* name : {"1.png", "4.png"}) folder.write(name, dot(1));
  for (const char* name : {"0.png", "2.png", "3.png", "5.png"}) folder.write(name, {'n', 'o'});
  EXPECT_THAT(thrown_by([&] { open_images({folder.path()}); }), reports(ErrorSource::input, "--skip-bad-images"));
  const OwnedData data = open_images({folder.path()}, true);
  const DatasetInfo& info = data.pair.train->info();
  EXPECT_EQ(info.samples, 2);
  std::vector<std::string> skipped_images;
  for (const SkippedImage& skipped : info.skipped) {
    skipped_images.push_back(std::filesystem::path(skipped.name).filename().string() + " " +
                             std::to_string(skipped.next_sample));
    EXPECT_THAT(skipped.problem, mentions("neither a JPEG nor a PNG nor a TIFF file"));
  }
  EXPECT_THAT(skipped_images, ElementsAre("0.png 0", "2.png 1", "3.png 1", "5.png 2"));
}

TEST(UnlabelledImages, ThatAreHeldOutHaveNoSkippedImages) {
  const ScratchFolder folder;
  for (int i = 0; i < 20; ++i) {
    const std::string name = (i < 10 ? "a/" : "b/") + std::to_string(10 + i) + ".png";
    folder.write(name, i % 2 == 0 ? dot(1) : Bytes{'n', 'o'});
  }
  const OwnedData data = open_data({.train = folder.path(), .validation_ratio = 0.3, .skip_bad_images = true});
  EXPECT_TRUE(data.pair.test->info().skipped.empty());
  const DatasetInfo& info = data.pair.train->info();
  ASSERT_EQ(info.skipped.size(), 10u);
  for (const SkippedImage& skipped : info.skipped) {
    EXPECT_TRUE(skipped.next_sample == 0 || data.pair.train->file_of(skipped.next_sample - 1) < skipped.name);
    EXPECT_TRUE(skipped.next_sample == info.samples || data.pair.train->file_of(skipped.next_sample) > skipped.name);
  }
}

TEST(UnlabelledImages, InAFolderAreADataSetOnlyIfUnlabelledDataAreAllowed) {
  const ScratchFolder folder;
  folder.write("1.png", dot(1));
  DataRequest request{.train = folder.path()};
  EXPECT_EQ(thrown_by([&] { open_data(request); }).source(), ErrorSource::input);
  request.allow_unlabelled = true;
  request.validation_ratio = 0.5;
  const OwnedData data = open_data(request);
  EXPECT_FALSE(data.pair.train->info().labelled);
  EXPECT_EQ(data.pair.train->info().samples, 1);
  EXPECT_EQ(data.pair.test, nullptr);
  folder.write("labels.csv", {'1', ',', 'x'});
  request.validation_ratio = 0;
  EXPECT_TRUE(open_data(request).pair.train->info().labelled);
}

TEST(UnlabelledImages, ThatDoNotExistAreRefusedByName) {
  const ScratchFolder folder;
  EXPECT_THAT(thrown_by([&] { open_images({folder.file("x.png")}); }),
              reports(ErrorSource::io, "no image '" + folder.file("x.png'")));
  EXPECT_THAT(thrown_by([&] { open_images({folder.path()}); }),
              reports(ErrorSource::input, "'" + folder.path() + "' ", "no .jpg, .jpeg, .png, .tif or .tiff files"));
}

}  // namespace
}  // namespace tutti
