#include "tutti/base/error.hpp"
#include "tutti/data/data_file.hpp"
#include "tutti/data/open_data.hpp"

#include "data/written_images.hpp"
#include "data/written_sets.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using testing_support::Bytes;
using testing_support::contents_of;
using testing_support::dot;
using testing_support::gradient;
using testing_support::jpeg_of;
using testing_support::open_named;
using testing_support::png_of;

Bytes text(const std::string& words) { return {words.begin(), words.end()}; }

std::string refusal(const std::string& train, ErrorSource source = ErrorSource::input) {
  const Error error = thrown_by([&] { open_named(train); });
  EXPECT_EQ(error.source(), source) << error.what();
  return error.what();
}

// The first pixel of every sample.
std::vector<int> first_pixels(const Dataset& data) {
  std::vector<int> values;
  const Bytes images = contents_of(data).images;
  const auto stride = images.size() / static_cast<std::size_t>(data.info().samples);
  for (std::size_t at = 0; at < images.size(); at += stride) values.push_back(images[at]);
  return values;
}

void write_pets(const ScratchFolder& folder, const std::string& inside = "") {
  folder.write(inside + "dog/b.PNG", dot(2));
  folder.write(inside + "dog/a.png", dot(1));
  folder.write(inside + "cat/z.png", dot(3));
}

TEST(ClassFolders, AreReadInTheOrderOfTheirNames) {
  const ScratchFolder folder;
  write_pets(folder);
  const OwnedData data = open_named(folder.path());
  const DatasetInfo& info = data.pair.train->info();
  EXPECT_EQ(info.name, std::filesystem::path(folder.path()).filename().string());
  EXPECT_EQ(info.image, (Shape{1, 2, 2}));
  EXPECT_EQ(info.classes, 2);
  EXPECT_THAT(info.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(info.class_samples, ElementsAre(1, 2));
  EXPECT_THAT(contents_of(*data.pair.train).labels, ElementsAre(0, 1, 1));
  EXPECT_THAT(first_pixels(*data.pair.train), ElementsAre(3, 1, 2));
  EXPECT_EQ(data.pair.train->resident_bytes(), 0u);
  EXPECT_TRUE(info.statistics.mean.empty());
  EXPECT_EQ(data.pair.test, nullptr);
}

TEST(ClassFolders, MayBeInFoldersOfTrainingAndTestSet) {
  for (const std::string test : {"test/", "valid/", "val/"}) {
    const ScratchFolder folder;
    write_pets(folder, "train/");
    folder.write(test + "dog/x.png", dot(9));
    folder.write("test/unlabelled.png", dot(8));
    const OwnedData data = open_named(folder.path());
    EXPECT_EQ(data.pair.train->info().samples, 3);
    ASSERT_NE(data.pair.test, nullptr);
    EXPECT_THAT(data.pair.notes, ::testing::IsEmpty());
    EXPECT_EQ(data.pair.test->info().name, std::filesystem::path(folder.path()).filename().string() + " (test)");
    EXPECT_THAT(data.pair.test->info().class_names, ElementsAre("cat", "dog"));
    EXPECT_THAT(contents_of(*data.pair.test).labels, ElementsAre(1));
    EXPECT_THAT(first_pixels(*data.pair.test), ElementsAre(9));
  }
}

TEST(ClassFolders, MayBeBelowOthers) {
  const ScratchFolder folder;
  for (const char* name : {"train/pets/dog/1", "train/pets/dog/old/2", "train/farm/cow/3", "test/pets/dog/4"}) {
    folder.write(std::string(name) + ".png", png_of(gradient(1, 4, 4)));
  }
  const OwnedData data = open_data({.train = folder.path(), .class_depth = 2});
  EXPECT_EQ(data.pair.train->info().class_names, (std::vector<std::string>{"farm/cow", "pets/dog"}));
  EXPECT_EQ(contents_of(*data.pair.train).labels, (std::vector<std::int32_t>{0, 1, 1}));
  EXPECT_EQ(data.pair.train->name_of(2), "pets/dog/old/2.png");
  EXPECT_EQ(contents_of(*data.pair.test).labels, (std::vector<std::int32_t>{1}));
}

TEST(ClassFolders, NoteWhichOfTwoTestSetsIsRead) {
  const ScratchFolder folder;
  write_pets(folder, "train/");
  folder.write("test/dog/x.png", dot(9));
  folder.write("val/dog/x.png", dot(8));
  const std::string other = folder.file("val");
  const OwnedData data = open_named(folder.path());
  EXPECT_THAT(first_pixels(*data.pair.test), ElementsAre(9));
  EXPECT_THAT(data.pair.notes, ElementsAre(fmt::format(
                                   "the test set is '{}/test', and '{}' is not read: --test-data {} uses that instead",
                                   folder.path(), other, other)));
  const OwnedData chosen = open_named(folder.path(), other);
  EXPECT_THAT(first_pixels(*chosen.pair.test), ElementsAre(8));
  EXPECT_THAT(chosen.pair.notes, ::testing::IsEmpty());
}

TEST(ClassFolders, OfTheTestSetMustBeClassesOfTheTrainingSet) {
  const ScratchFolder folder;
  write_pets(folder, "train/");
  folder.write("test/fox/x.png", dot(9));
  EXPECT_THAT(refusal(folder.path()), mentions("'" + folder.file("test' has the class 'fox'"),
                                               "'" + folder.file("train' lacks"), "rename or move it"));
}

TEST(ClassFolders, AreAllTheClassesThatLabelsWithoutNamesMayBe) {
  const ScratchFolder folder;
  folder.write("train/cat/1.png", dot(1));
  const std::string file = folder.file("set.h5");
  write_data_file(open_named(folder.path()).pair, file);
  EXPECT_EQ(open_named(file).pair.train->info().classes, 1);
  folder.write("t10k-images-idx3-ubyte", testing_support::idx_file({0x803, 1, 2, 2}, 4));
  folder.write("t10k-labels-idx1-ubyte", testing_support::idx_labels({1}));
  EXPECT_THAT(refusal(folder.path()), mentions("the test label is 1, ", "the training set ", "add training samples"));
}

TEST(ClassFolders, HoldImagesOfDifferentSizesAndColors) {
  const ScratchFolder folder;
  folder.write("a/1.jpg", jpeg_of(gradient(1, 8, 8)));
  folder.write("a/2.jpeg", jpeg_of(gradient(3, 8, 8)));
  EXPECT_EQ(open_named(folder.path()).pair.train->info().image, (Shape{3, 8, 8}));
  folder.write("b/3.png", png_of(gradient(3, 4, 6)));
  const OwnedData data = open_named(folder.path());
  EXPECT_TRUE(data.pair.train->info().sizes_differ());
  EXPECT_EQ(data.pair.train->info().image, (Shape{3, 0, 0}));
  SampleBatch batch;
  data.pair.train->read(std::array<std::int64_t, 2>{2, 0}, batch);
  EXPECT_EQ(batch.images[0].shape, (Shape{3, 4, 6}));
  EXPECT_EQ(batch.images[1].shape, (Shape{3, 8, 8}));
  data.pair.train->read(std::array<std::int64_t, 1>{1}, batch);
  EXPECT_EQ(batch.images.size(), 1u);
  EXPECT_EQ(batch.images[0].shape, (Shape{3, 8, 8}));
}

TEST(ClassFolders, ApplyTheExifOrientationUnlessDisabled) {
  const ScratchFolder folder;
  folder.write("a/1.jpg", testing_support::turned(jpeg_of(gradient(1, 8, 16)), 6));
  folder.write("b/1.jpg", testing_support::turned(jpeg_of(gradient(1, 8, 16)), 8));
  for (const bool upright : {true, false}) {
    const OwnedData data = open_data({.train = folder.path(), .test = {}, .applies_exif = upright});
    const DataPair& pair = data.pair;
    const Shape expected = upright ? Shape{1, 16, 8} : Shape{1, 8, 16};
    EXPECT_EQ(pair.train->info().image, expected);
    SampleBatch batch;
    pair.train->read(std::array<std::int64_t, 1>{0}, batch);
    EXPECT_EQ(batch.images[0].shape, expected);
  }
}

TEST(ClassFolders, AgreeOnColorAndSizeOverBothSets) {
  const ScratchFolder folder;
  folder.write("train/a/1.png", png_of(gradient(1, 4, 4)));
  folder.write("test/a/1.png", png_of(gradient(3, 4, 4)));
  const OwnedData colored = open_named(folder.path());
  EXPECT_EQ(colored.pair.train->info().image, (Shape{3, 4, 4}));
  EXPECT_EQ(colored.pair.test->info().image, (Shape{3, 4, 4}));
  folder.write("test/a/1.png", png_of(gradient(3, 4, 5)));
  const OwnedData data = open_named(folder.path());
  EXPECT_EQ(data.pair.train->info().image, (Shape{3, 0, 0}));
  EXPECT_EQ(data.pair.test->info().image, (Shape{3, 0, 0}));
}

TEST(ClassFolders, ReportWhatTheyLeaveOutAndNeedImages) {
  const ScratchFolder folder;
  write_pets(folder);
  folder.write("dog/readme.txt", text("dogs"));
  folder.write("dog/.hidden", text(""));
  folder.write("dog/more/c.png", dot(4));
  const OwnedData data = open_named(folder.path());
  EXPECT_EQ(data.pair.train->info().samples, 4) << "with dog/more/c.png";
  EXPECT_EQ(data.pair.train->name_of(3), "dog/more/c.png");
  ASSERT_EQ(data.pair.notes.size(), 1u);
  EXPECT_THAT(data.pair.notes[0], mentions("1 entries of '" + folder.path() + "' ", "are skipped"));
  std::filesystem::create_directory(folder.file("eel"));
  EXPECT_THAT(refusal(folder.path()), mentions("/eel' ", "no .jpg, .jpeg, .png, .tif or .tiff files"));
}

TEST(ClassFolders, NameABadImageWhenItIsRead) {
  const ScratchFolder folder;
  write_pets(folder);
  folder.write("cat/bad.png", text("no image"));
  EXPECT_THAT(refusal(folder.path()), mentions("/cat/bad.png' cannot be decoded: it is neither", "--skip-bad-images"));

  Bytes torn = dot(5);
  torn[torn.size() - 20] ^= 1;  // its header is good
  folder.write("cat/bad.png", torn);
  const OwnedData data = open_named(folder.path());
  SampleBatch batch;
  EXPECT_THAT(thrown_by([&] { data.pair.train->read(std::array<std::int64_t, 1>{0}, batch); }),
              reports(ErrorSource::input, "/cat/bad.png' cannot be decoded: ", "--skip-bad-images"));
}

TEST(ClassFolders, LeaveOutAndCountBadImagesOnRequest) {
  const ScratchFolder folder;
  write_pets(folder);
  Bytes torn = dot(5);
  torn[torn.size() - 20] ^= 1;
  folder.write("dog/aa.png", torn);
  folder.write("dog/c.jpg", text(""));
  DataRequest request{.train = folder.path(), .skip_bad_images = true};
  const OwnedData data = open_data(request);
  EXPECT_THAT(first_pixels(*data.pair.train), ElementsAre(3, 1, 2));
  EXPECT_THAT(contents_of(*data.pair.train).labels, ElementsAre(0, 1, 1));
  ASSERT_EQ(data.pair.notes.size(), 1u);
  EXPECT_THAT(data.pair.notes[0], mentions("2 of 5 images of ", "first the image '" + folder.file("dog/aa.png'")));

  const ScratchFolder all_bad;
  all_bad.write("a/1.png", text("x"));
  request.train = all_bad.path();
  EXPECT_THAT(thrown_by([&] { open_data(request); }), reports(ErrorSource::input, "all 1 images of "));
}

TEST(ClassFolders, StandForTheirNamesLengthsAndLabels) {
  const ScratchFolder folder;
  write_pets(folder);
  const auto digest = [&] { return open_named(folder.path()).pair.train->digest(); };
  const std::uint64_t before = digest();
  EXPECT_EQ(digest(), before);
  Bytes longer = dot(1);
  longer.push_back(0);
  folder.write("dog/a.png", longer);
  EXPECT_NE(digest(), before);
  folder.write("dog/a.png", dot(1));
  EXPECT_EQ(digest(), before);
  std::filesystem::rename(folder.file("cat/z.png"), folder.file("dog/z.png"));
  folder.write("cat/y.png", dot(3));
  EXPECT_NE(digest(), before);
}

TEST(ClassFolders, CanHoldOutAShareForValidation) {
  const ScratchFolder folder;
  for (int i = 0; i < 10; ++i) {
    folder.write((i < 5 ? "a/" : "b/") + std::to_string(i) + ".png", dot(static_cast<std::uint8_t>(i)));
  }
  const OwnedData data = open_data({.train = folder.path(), .validation_ratio = 0.3});
  std::vector<int> all = first_pixels(*data.pair.train);
  const std::vector<int> held_out = first_pixels(*data.pair.test);
  EXPECT_EQ(held_out.size(), 3u);
  EXPECT_TRUE(std::ranges::is_sorted(all) && std::ranges::is_sorted(held_out));
  for (std::size_t i = 0; i < held_out.size(); ++i)
    EXPECT_EQ(contents_of(*data.pair.test).labels[i], held_out[i] >= 5 ? 1 : 0);
  all.insert(all.end(), held_out.begin(), held_out.end());
  std::ranges::sort(all);
  EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

class LabelCsv : public ::testing::Test {
 protected:
  LabelCsv() {
    for (const char* name : {"a.png", "b.png", "c, d.png", "10.png"}) folder_.write(name, dot(name[0] & 15));
  }
  OwnedData open(const std::string& table) {
    folder_.write("labels.csv", text(table));
    return open_named(folder_.path());
  }
  std::string refuse(const std::string& table) {
    folder_.write("labels.csv", text(table));
    return refusal(folder_.path());
  }
  ScratchFolder folder_;
};

TEST_F(LabelCsv, NamesImagesAndLabelsInItsOrder) {
  for (const std::string table : {"b.png,dog\na.png,cat\n10.png,dog\n", "file,label\r\nb,dog\r\na,cat\r\n10,dog",
                                  "\xEF\xBB\xBFid,breed\n\nb,\"dog\"\n\"a.png\",cat\n10.png,dog\n\n"}) {
    const OwnedData data = open(table);
    EXPECT_THAT(data.pair.train->info().class_names, ElementsAre("cat", "dog")) << table;
    EXPECT_THAT(contents_of(*data.pair.train).labels, ElementsAre(1, 0, 1)) << table;
    EXPECT_THAT(first_pixels(*data.pair.train), ElementsAre('b' & 15, 'a' & 15, '1' & 15)) << table;
    ASSERT_EQ(data.pair.notes.size(), 1u);
    EXPECT_THAT(data.pair.notes[0], mentions("1 images of "));
  }
}

TEST_F(LabelCsv, TakesQuotedFieldsWithCommasQuotesAndLines) {
  const OwnedData data = open("\"c, d.png\",\"big, \"\"red\"\"\none\"\na,x\n");
  EXPECT_THAT(data.pair.train->info().class_names, ElementsAre("big, \"red\"\none", "x"));
  EXPECT_THAT(refuse("\"c, d.png\",\"two\nlines\"\nnone,x\n"), mentions("labels.csv:3: there is no image 'none'"));
}

TEST_F(LabelCsv, OrdersClassesThatAreNumbersByTheirValue) {
  EXPECT_THAT(open("a,10\nb,9\n10,-1\n").pair.train->info().class_names, ElementsAre("-1", "9", "10"));
  EXPECT_THAT(open("a,10\nb,9\n10,x\n").pair.train->info().class_names, ElementsAre("10", "9", "x"));
}

TEST_F(LabelCsv, IsRefusedWithTheLineThatIsWrong) {
  EXPECT_THAT(refuse("a,x\nnone.png,y\n"), mentions("labels.csv:2: there is no image 'none.png'"));
  EXPECT_THAT(refuse("a,x\n\nb,\n"), mentions("labels.csv:3: 'b' has no label"));
  EXPECT_THAT(refuse("a,x\na.png,y\n"), mentions("labels.csv:2: 'a.png' ", "already, in line 1"));
  EXPECT_THAT(refuse("a,x,y\n"), mentions("labels.csv:1: 3 fields "));
  EXPECT_THAT(refuse("a\n"), mentions("labels.csv:1: 1 field "));
  EXPECT_THAT(refuse("file;label\na.png;x\n"), mentions("labels.csv:1: semicolons ", "put a comma"));
  EXPECT_THAT(refuse("a\tx\n"), mentions("labels.csv:1: tabs ", "put a comma"));
  EXPECT_THAT(refuse("a,\"x\n"), mentions("labels.csv:1: a quoted field never ends"));
  EXPECT_THAT(refuse("a,\"x\"y\n"), mentions("labels.csv:1: something follows a quoted field"));
  EXPECT_THAT(refuse("file,label\n"), mentions("labels.csv:1: the table lists no images"));
  folder_.write("a.jpg", jpeg_of(gradient(1, 2, 2)));
  EXPECT_THAT(refuse("a,x\n"), mentions("labels.csv:1: 'a' ", "more than one image"));
}

TEST_F(LabelCsv, MayHaveAnotherNameWhenItIsTheOnlyOne) {
  folder_.write("train.csv", text("a,x\nb,y\n"));
  EXPECT_EQ(open_named(folder_.path()).pair.train->info().samples, 2);
  folder_.write("other.csv", text("a,x\n"));
  EXPECT_THAT(refusal(folder_.path()), mentions("2 tables", "other.csv and train.csv", "to labels.csv"));
  EXPECT_EQ(open("a,x\nb,y\n10,z\n").pair.train->info().samples, 3);
}

TEST(FlatFolder, WithoutATableIsRefused) {
  const ScratchFolder folder;
  folder.write("a.png", dot(1));
  EXPECT_THAT(refusal(folder.path()), mentions("'" + folder.path() + "' contains 1 image file ",
                                               "move each class into a folder", "add labels.csv"));
  folder.write("b.png", dot(2));
  EXPECT_THAT(refusal(folder.path()), mentions("contains 2 image files "));
}

TEST(ImageFile, InPlaceOfItsFolderIsRefusedAsAnImage) {
  const ScratchFolder folder;
  folder.write("cat/a.png", dot(1));
  folder.write("cat/b", jpeg_of(gradient(1, 2, 2)));
  for (const char* name : {"/cat/a.png", "/cat/b"}) {
    EXPECT_THAT(refusal(folder.path() + name), mentions(std::string(name) + "' is an image", "give --data the folder"));
  }
}

TEST(ClassFolders, AreRequiredInTheFoldersOfTrainingAndTestSet) {
  const ScratchFolder folder;
  folder.write("train/a.png", dot(1));
  folder.write("test/b.png", dot(2));
  EXPECT_THAT(refusal(folder.path()), mentions("/train' contains images ", "move each class into a folder"));
}

}  // namespace
}  // namespace tutti
