// The per-class output of trainer eval.

#include "data/written_images.hpp"
#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>

namespace tutti::test {
namespace {

using tutti::testing_support::Bytes;
using tutti::testing_support::gradient;
using tutti::testing_support::Picture;
using tutti::testing_support::png_of;

TEST(EvaluationByClass, HasTheSameFiguresOnAnyRanks) {
  const ScratchFolder folder;
  const auto file = [&](const std::string& name) { return folder.file(name); };
  const std::string run = file("run");
  const ChildResult trained =
      run_trainer({"--steps", "60", "--batch-size", "64", "--threads", "1", "--normalize", "0.1/0.9", "--out", run});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const ChildResult plain = run_trainer({"eval", "--checkpoint", run});
  Words outputs;
  for (const int ranks : {0, 2, 3}) {
    const ChildResult result =
        run_trainer(ranks, {"eval", "--checkpoint", run, "--classes", "--json", file("eval.json")});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(result.out.starts_with(plain.out)) << result.out;
    EXPECT_THAT(result.out, mentions("\nclass  images     acc  mistaken for\n"));
    outputs.push_back(result.out + read_text(file("eval.json")));
    EXPECT_EQ(outputs.back(), outputs.front()) << ranks << " ranks";
  }
  const auto json = nlohmann::json::parse(read_text(file("eval.json")));
  ASSERT_EQ(json.at("confusion").size(), 10u);
  int images = 0;
  int right = 0;
  for (std::size_t label = 0; label < 10; ++label) {
    const auto& row = json.at("confusion").at(label);
    const auto& own = json.at("classes").at(label);
    int sum = 0;
    for (const auto& count : row) sum += count.get<int>();
    EXPECT_EQ(own.at("class"), std::to_string(label));
    EXPECT_EQ(own.at("images"), sum);
    EXPECT_EQ(own.at("correct"), row.at(label));
    images += sum;
    right += row.at(label).get<int>();
  }
  EXPECT_EQ(json.at("images"), images);
  EXPECT_EQ(json.at("accuracy").get<double>(), static_cast<double>(right) / images);
}

// One step with this learning rate leaves weights and losses of 1e10 and more.
TEST(Evaluation, CountsLargeLossesTheSameOnAnyRanks) {
  const ScratchFolder folder;
  const std::string run = folder.file("run");
  const ChildResult trained = run_trainer(
      {"--model", "linear", "--data", "synthetic:1000x1x12x12:4", "--steps", "1", "--lr", "1e12", "--out", run});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const ChildResult alone = run_trainer({"eval", "--checkpoint", run, "--on", "train"});
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_GT(std::stod(alone.out.substr(std::string("train loss ").size())), 1e9) << alone.out;
  for (const int ranks : {2, 3}) {
    EXPECT_EQ(run_trainer(ranks, {"eval", "--checkpoint", run, "--on", "train"}).out, alone.out);
    EXPECT_EQ(run_trainer(ranks, {"predict", "--checkpoint", run, "--on", "train"}).status, 0);
  }
}

TEST(Evaluation, OfARunNeedsNothingOfItsExactSums) {
  const ScratchFolder folder;
  const std::string run = folder.file("run");
  const ChildResult trained =
      run_trainer({"--model", "linear", "--data", "synthetic:100x1x12x12:4", "--validation-ratio", "0.2", "--parts",
                   "2", "--audit-every", "1", "--wire", "int64", "--shard-optimizer", "--epochs", "1", "--out", run});
  ASSERT_EQ(trained.status, 0) << trained.err;
  for (const char* const command : {"eval", "predict"}) {
    EXPECT_THAT(run_trainer({command, "--checkpoint", run}), ends(0));
  }
}

TEST(EvaluationByClass, OfManyClassesIsWrittenWithoutZeros) {
  const ScratchFolder folder;
  const auto file = [&](const std::string& name) { return folder.file(name); };
  const ChildResult trained = run_trainer({"--model", "linear", "--data", "synthetic:64x1x4x4:1500", "--steps", "1",
                                           "--checkpoint-every", "1steps", "--out", file("many")});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const ChildResult result =
      run_trainer({"eval", "--checkpoint", file("many"), "--on", "train", "--json", file("eval.json")});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = nlohmann::json::parse(read_text(file("eval.json")));
  EXPECT_FALSE(json.contains("confusion"));
  EXPECT_EQ(json.at("classes").size(), 1500u);
  int images = 0;
  for (const auto& entry : json.at("confusion_entries")) {
    EXPECT_GE(json.at("classes").at(entry.at(0).get<std::size_t>()).at("images"), entry.at(2));
    images += entry.at(2).get<int>();
  }
  EXPECT_EQ(images, 64);
}

class GivenData : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name); }

  ScratchFolder folder_;
};

TEST_F(GivenData, AreEvaluatedWholeAndThoseOfTheRunAsItSplitThem) {
  for (int i = 0; i < 20; ++i) {
    const Bytes image = png_of(gradient(1, 8, 8, 11 * i));
    for (const char* place : {"own", "moved"}) {
      folder_.write(fmt::format("{}/{}/{}.png", place, i % 2 == 0 ? "cat" : "dog", i), image);
    }
    if (i < 8) folder_.write(fmt::format("other/{}/other-{}.png", i % 2 == 0 ? "cat" : "dog", i), image);
  }
  const ChildResult trained = run_trainer({"--data", path("own"), "--validation-ratio", "0.25", "--model", "linear",
                                           "--batch-size", "8", "--steps", "2", "--out", path("run")});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const auto expect = [&](const Words& words, const std::string& begin, const std::string& end) {
    const ChildResult result = run_trainer(with(words, {"--checkpoint", path("run")}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(result.out.starts_with(begin) && result.out.ends_with(end)) << result.out;
  };
  expect({"eval"}, "test loss", ", 5 images\n");
  expect({"eval", "--data", path("own")}, "test loss", ", 5 images\n");
  expect({"eval", "--data", path("moved")}, "test loss", ", 5 images\n");
  expect({"eval", "--data", path("other")}, "all loss", ", 8 images\n");
  expect({"eval", "--data", path("other"), "--on", "train"}, "train loss", ", 8 images\n");
  expect({"eval", "--data", "synthetic:200x1x8x8:2"}, "test loss", ", 20 images\n");
  expect({"predict", "--data", path("other"), "--csv", path("rows.csv")}, "all loss", ", 8 images\n");
}

TEST_F(GivenData, ThatTheNetworkWasTrainedOnAreWarnedOf) {
  for (int i = 0; i < 20; ++i) {
    const std::string name = fmt::format("{}/{}.png", i % 2 == 0 ? "cat" : "dog", i);
    folder_.write("own/" + name, png_of(gradient(1, 8, 8, 11 * i)));
    if (i < 4) folder_.write("some/" + name, png_of(gradient(1, 8, 8, 11 * i)));
    folder_.write(fmt::format("new/{}/new-{}.png", i % 2 == 0 ? "cat" : "dog", i), png_of(gradient(1, 8, 8, 7 * i)));
  }
  ASSERT_EQ(run_trainer({"data", "convert", path("own"), path("own.h5"), "--validation-ratio", "0.25"}).status, 0);
  const auto expect = [&](const Words& words, const std::string& expected) {
    const ChildResult result = run_trainer(2, with({"eval", "--checkpoint", path("run")}, words));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, mentions(expected)) << fmt::format("{}", fmt::join(words, " "));
    EXPECT_EQ(result.err.find("trained on") == std::string::npos, expected.empty()) << result.err;
  };
  for (const Words& data : {Words{path("own.h5")}, Words{path("own"), "--validation-ratio", "0.25"}}) {
    std::filesystem::remove_all(path("run"));
    ASSERT_EQ(
        run_trainer(with(with({"--data"}, data), {"--model", "linear", "--steps", "1", "--out", path("run")})).status,
        0);
    expect({}, "");
    expect({"--on", "train"}, "");
    expect({"--data", path("new")}, "");
    expect({"--data", data.front()}, "");
    expect({"--test-data", path("own")},
           "15 of these 20 images have the names of images that the network was trained on, first cat/");
    EXPECT_THAT(
        run_trainer(2, {"--init-from", path("run"), "--data", path("new"), "--test-data", path("own"), "--steps", "1"})
            .err,
        mentions("test set: 15 of these 20 images have the names of images that the network"));
    expect({"--data", path("some")}, " of these 4 images have the names of images that the network was trained on");
  }
  std::filesystem::remove_all(path("run"));
  ASSERT_EQ(run_trainer({"--data", path("own"), "--model", "linear", "--steps", "1", "--out", path("run")}).status, 0);
  expect({"--test-data", path("own")}, "the network was trained on these images");
}

// A disc of the class's color on a frame of another, which a second crop would cut off.
Bytes framed(int side, int color) {
  Picture picture{1, side, side + side / 4, {}};
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      const int from_edge = std::min({y, side - 1 - y, x - side / 8, side - 1 + side / 8 - x});
      picture.pixels.push_back(static_cast<std::uint8_t>(from_edge * 10 < side ? 250 : color));
    }
  }
  return png_of(picture);
}

// Cameras begin at the same number in every folder, and names of training and test set repeat.
TEST_F(GivenData, AreKnownByTheirPicturesWhereNamesRepeat) {
  for (int i = 0; i < 6; ++i) {
    const std::string name = fmt::format("{}/IMG_{}.png", i % 2 == 0 ? "cat" : "dog", i);
    for (const auto& [folder, side] : {std::pair("own/train", 40), std::pair("larger", 120)}) {
      folder_.write(fmt::format("{}/{}", folder, name), framed(side, 40 * i));
    }
    folder_.write("own/test/" + name, framed(56, 40 * i + 20));
    folder_.write("new/" + name, framed(56, 40 * i + 20));
  }
  ASSERT_EQ(run_trainer({"data", "convert", path("own"), path("own.h5"), "--image-size", "32"}).status, 0);
  for (const char* own : {"own", "own.h5"}) {
    std::filesystem::remove_all(path("run"));
    ASSERT_EQ(run_trainer({"--data", path(own), "--image-size", "32", "--model", "linear", "--steps", "1", "--out",
                           path("run")})
                  .status,
              0);
    for (const auto& [data, known] : {std::pair("new", 0), std::pair(own, 0), std::pair("larger", 6)}) {
      const ChildResult result = run_trainer({"eval", "--checkpoint", path("run"), "--data", path(data)});
      EXPECT_EQ(result.status, 0) << result.err;
      EXPECT_EQ(count(result.err, fmt::format("{} of these 6 images have the names of images that", known)), known / 6)
          << result.err;
      EXPECT_EQ(count(result.err, "trained on"), known / 6) << result.err;
    }
  }
}

TEST_F(GivenData, OfADataFileAreShownByTheNamesOfTheFilesThatItWasMadeFrom) {
  for (int i = 0; i < 20; ++i) {
    folder_.write(fmt::format("own/{}/{}.png", i % 2 == 0 ? "cat" : "dog", i), png_of(gradient(1, 8, 8, 11 * i)));
  }
  ASSERT_EQ(run_trainer({"data", "convert", path("own"), path("own.h5"), "--validation-ratio", "0.25"}).status, 0);
  ASSERT_EQ(run_trainer({"--data", path("own.h5"), "--model", "linear", "--steps", "1", "--out", path("run")}).status,
            0);
  const ChildResult result = run_trainer(
      {"eval", "--checkpoint", path("run"), "--on", "train", "--mistakes", path("wrong"), "--json", path("eval.json")});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto mistakes = nlohmann::json::parse(read_text(path("eval.json"))).at("mistakes");
  ASSERT_GT(mistakes.size(), 0u);
  for (const auto& mistake : mistakes) {
    EXPECT_THAT(mistake.at("image"), ::testing::StartsWith(mistake.at("label").get<std::string>() + "/")) << mistake;
    std::string source = mistake.at("image");
    std::ranges::replace(source, '/', '_');
    EXPECT_THAT(mistake.at("picture"),
                ::testing::EndsWith("-" + source + "-as-" + mistake.at("predicted").get<std::string>() + ".png"));
    EXPECT_TRUE(std::filesystem::exists(path("wrong/") + mistake.at("picture").get<std::string>()));
  }
  // Pictures of an earlier evaluation are replaced; other files stay.
  folder_.write("wrong/12.png", png_of(gradient(1, 8, 8, 0)));
  const Words again{"eval", "--checkpoint", path("run"), "--on", "test", "--mistakes", path("wrong")};
  ASSERT_EQ(run_trainer(again).status, 0);
  const auto listed = nlohmann::json::parse(read_text(path("wrong/mistakes.json")));
  std::size_t pictures = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path("wrong"))) {
    pictures += entry.path().extension() == ".png" ? 1 : 0;
  }
  EXPECT_EQ(pictures, listed.size() + 1);
  folder_.write("wrong/mistakes.json", Bytes{'{', '}'});
  EXPECT_EQ(run_trainer(again).status, 64);
  const ChildResult rows = run_trainer({"predict", "--checkpoint", path("run"), "--csv", "-"});
  EXPECT_EQ(count(rows.out, ".png,"), 5) << rows.out;
}

// A converted image is resampled twice, which moves probabilities by up to 0.05; a second crop moved them by 0.2.
TEST_F(GivenData, OfAConvertedFileAreSeenAsPredictSeesTheFilesThatItWasMadeFrom) {
  for (int i = 0; i < 24; ++i) {
    folder_.write(fmt::format("photos/{}/{}.png", i % 2 == 0 ? "cat" : "dog", i),
                  framed(64 + 3 * i, i % 2 == 0 ? 20 + i : 90 - i));
  }
  ASSERT_EQ(run_trainer({"data", "convert", path("photos"), path("photos.h5"), "--image-size", "48"}).status, 0);
  for (const std::string size : {"48", "32"}) {
    const std::string run = path("run" + size);
    const ChildResult trained = run_trainer({"--data", path("photos.h5"), "--image-size", size, "--model", "linear",
                                             "--batch-size", "8", "--epochs", "2", "--lr", "0.02", "--out", run});
    ASSERT_EQ(trained.status, 0) << trained.err;
    std::map<std::string, double> cats;  // by file
    for (const Words& source : {Words{"--on", "train"}, Words{path("photos")}}) {
      const std::string rows = path("rows.json");
      ASSERT_EQ(run_trainer(with({"predict", "--checkpoint", run, "--probabilities", "--json", rows}, source)).status,
                0);
      std::istringstream lines(read_text(rows));
      for (std::string line; std::getline(lines, line);) {
        const auto row = nlohmann::json::parse(line);
        const std::string file = std::filesystem::path(row.at("image").get<std::string>()).filename();
        const double cat = row.at("probabilities").at("cat");
        const auto [before, is_first] = cats.emplace(file, cat);
        EXPECT_NEAR(before->second, cat, 0.08) << size << " " << file << (is_first ? "" : " differs");
      }
    }
    EXPECT_EQ(cats.size(), 24u);
  }
}

TEST_F(GivenData, ThatDifferFromThoseOfTheFirstWeightsAreReportedWithBothValues) {
  for (int i = 0; i < 8; ++i) {
    folder_.write(fmt::format("gray/{}/{}.png", i % 2 == 0 ? "cat" : "dog", i), png_of(gradient(1, 28, 28, 11 * i)));
    folder_.write(fmt::format("named/{}/{}.png", i % 2 == 0 ? "ant" : "cat", i), png_of(gradient(1, 28, 28, 11 * i)));
    folder_.write(fmt::format("color/{}/{}.png", i % 2 == 0 ? "cat" : "dog", i), png_of(gradient(3, 28, 28, 11 * i)));
  }
  const auto train = [&](const std::string& source, const Words& more) {
    return run_trainer(with({"--data", path(source), "--steps", "1"}, more));
  };
  ASSERT_EQ(train("gray", {"--normalize", "0.5/0.25", "--out", path("run")}).status, 0);
  const Words from_run{"--init-from", path("run")};
  const ChildResult same = train("gray", with(from_run, {"--normalize", "0.5/0.25"}));
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.err, ::testing::Not(mentions("were trained")));
  EXPECT_THAT(same.err, mentions("(step 1)"));
  EXPECT_THAT(train("named", from_run),
              ends(0, "warning: --normalize is none here, and the weights of ", " were trained with 0.5/0.25: ",
                   "warning: class 0 is 'ant' here, and was 'cat' where the weights of "));
  EXPECT_THAT(train("color", from_run),
              ends(65, "the images have 3 channels, the checkpoint's had 1; give images with the same number"));
  EXPECT_EQ(run_trainer(with({"check", "--data", path("named")}, from_run)).status, 0);
}

}  // namespace
}  // namespace tutti::test
