// Image folders with something wrong, as trainer check, data info and training report them.

#include "data/written_images.hpp"
#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

namespace tutti::test {
namespace {

using tutti::testing_support::Bytes;
using tutti::testing_support::gradient;
using tutti::testing_support::png_of;

class BadFolders : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name); }
  static ChildResult data(const Words& words) { return run_trainer(with({"data"}, words)); }

  ScratchFolder folder_;
};

TEST_F(BadFolders, HaveTheirBrokenImagesNamedBeforeAnythingIsTrained) {
  for (int i = 0; i < 600; ++i) {
    folder_.write(fmt::format("in/{}/{}.png", i % 2 == 0 ? "cat" : "dog", i), png_of(gradient(3, 8, 8, i)));
  }
  const Words check{"check", "--data", path("in"), "--model", "mlp"};
  EXPECT_EQ(run_trainer(check).status, 0);
  EXPECT_THAT(data({"info", path("in"), "--verify"}).out,
              mentions("verified   the headers of 600 images; 256 of them decoded\n"));
  for (const char* name : {"in/cat/0.png", "in/dog/311.png", "in/dog/7.png"}) {
    std::filesystem::resize_file(path(name), std::filesystem::file_size(path(name)) - 20);
  }
  const ChildResult checked = run_trainer(check);
  EXPECT_THAT(checked, ends(1));
  EXPECT_THAT(checked.out, mentions("3 of 600 images in '" + path("in") + "' cannot be read: first the image '",
                                    "/cat/0.png' cannot be decoded"));
  EXPECT_EQ(data({"info", path("in"), "--verify"}).status, 65);
  EXPECT_EQ(run_trainer(with(check, {"--skip-bad-images"})).status, 0);
}

TEST_F(BadFolders, HaveFoldersInsideAClassFolderThatAreNotRead) {
  for (int i = 0; i < 4; ++i) {
    folder_.write(fmt::format("deep/{}/more/{}.png", i % 2, i), png_of(gradient(1, 8, 8, i)));
    folder_.write(fmt::format("half/{}/{}{}.png", i % 2, i == 1 || i == 3 ? "more/" : "", i),
                  png_of(gradient(1, 8, 8, i)));
  }
  EXPECT_THAT(data({"info", path("deep")}).err,
              mentions("but '" + path("deep/0") +
                       "' contains class folders: give that folder; or, if all folders like "
                       "those in it are the classes, --class-depth 2; or, if its name"));
  EXPECT_THAT(
      data({"info", path("half")}).err,
      mentions("and folders inside it, as 'more', are not read; if they are the classes, give --class-depth 2"));
  EXPECT_THAT(data({"info", path("deep"), "--class-depth", "2"}).out, mentions("0/more", "1/more"));
}

TEST_F(BadFolders, MayHaveAnInnerFolderWithTheClasses) {
  for (int i = 0; i < 4; ++i) {
    folder_.write(fmt::format("zip/photos/{}/{}.png", i % 2, i), png_of(gradient(1, 8, 8, i)));
    folder_.write(fmt::format("deeper/a/photos/train/{}/{}.png", i % 2, i), png_of(gradient(1, 8, 8, i)));
  }
  for (const auto& [outer, inner] : {std::pair("zip", "zip/photos"), std::pair("deeper", "deeper/a/photos")}) {
    EXPECT_THAT(data({"info", path(outer)}),
                ends(65, "but '" + path(inner) + "' contains class folders: give that folder"));
    EXPECT_EQ(data({"info", path(inner)}).status, 0);
  }
}

TEST_F(BadFolders, AreVerifiedWholeWhateverIsWrong) {
  for (int i = 0; i < 20; ++i) {
    const Bytes image = png_of(gradient(3, 8, 8, i));
    folder_.write(fmt::format("in/{}/{}.png", i % 2 == 0 ? "cat" : "dog", i), image);
  }
  std::filesystem::create_directory(path("in/eel"));
  std::filesystem::create_directory(path("in/fox"));
  for (const char* name : {"in/cat/0.png", "in/dog/11.png", "in/dog/7.png"}) folder_.write(name, {'n', 'o'});
  EXPECT_THAT(data({"info", path("in")}), ends(65, "/in/eel' contains no .jpg, .jpeg, .png, .tif or .tiff files"));
  const ChildResult verified = data({"info", path("in"), "--verify"});
  EXPECT_EQ(verified.status, 65);
  for (const char* problem : {"the class folder '/eel'", "the class folder '/fox'", "the image '/cat/0.png' ",
                              "the image '/dog/7.png' ", "the image '/dog/11.png' "}) {
    std::string line = std::string("\nproblem    ") + problem;
    EXPECT_THAT(verified.out, mentions(line.replace(line.find('/'), 1, path("in/"))));
  }
  EXPECT_THAT(verified.err, mentions("5 problems in " + path("in") + ", listed above"));
  EXPECT_THAT(verified.out, mentions("training   17 images of 3x8x8"));
  std::filesystem::remove(path("in/eel"));
  std::filesystem::remove(path("in/fox"));
  EXPECT_EQ(data({"info", path("in"), "--verify"}).status, 65);
  const ChildResult skipped = data({"info", path("in"), "--verify", "--skip-bad-images"});
  EXPECT_THAT(skipped, ends(0));
  EXPECT_THAT(skipped.out, mentions("problem    the image '" + path("in/cat/0.png")));
}

TEST_F(BadFolders, OfOneClassAreAnErrorOfTheCheckAndAWarningOfTraining) {
  for (int i = 0; i < 4; ++i) folder_.write(fmt::format("in/cat/{}.png", i), png_of(gradient(1, 8, 8, i)));
  const std::string text = "in has images of one class only, 'cat': a classifier needs two classes";
  EXPECT_THAT(data({"info", path("in")}).err, mentions(text));
  const Words train{"--data", path("in"), "--model", "linear", "--steps", "1"};
  const ChildResult checked = run_trainer(with({"check"}, train));
  EXPECT_THAT(checked, ends(1));
  EXPECT_THAT(checked.out, mentions("error: " + text));
  EXPECT_THAT(run_trainer(with(train, {"--quiet"})), ends(0, text));
  folder_.write("in/dog/1.png", png_of(gradient(1, 8, 8, 9)));
  EXPECT_EQ(run_trainer(with({"check"}, train)).status, 0);
}

}  // namespace
}  // namespace tutti::test
