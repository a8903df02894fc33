// Predictions for the images of a data set and of files, the same on any number of ranks.

#include "tutti/data/open_data.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "data/written_images.hpp"
#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

using ::testing::ElementsAre;
using testing_support::Bytes;

using testing_support::Picture;
namespace fs = std::filesystem;

using Rows = std::vector<Words>;

// Splits lines without quotes.
Rows rows_of(const std::string& text) {
  Rows rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Words& row = rows.emplace_back();
    std::size_t begin = 0;
    for (std::size_t end = line.find(','); end != line.npos; begin = end + 1, end = line.find(',', begin)) {
      row.push_back(line.substr(begin, end - begin));
    }
    row.push_back(line.substr(begin));
  }
  return rows;
}

double number(const std::string& text) {
  double value = -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  EXPECT_TRUE(status == std::errc{} && end == text.data() + text.size()) << text;
  return value;
}

// A short training on glyphs.
class Predict : public ::testing::Test {
 protected:
  static constexpr int kPictures = 6;

  static void SetUpTestSuite() {
    trained_.emplace();
    const ChildResult run = run_trainer({"--steps", "60", "--batch-size", "64", "--threads", "1", "--normalize",
                                         "0.1/0.9", "--out", trained_->file("run")});
    ASSERT_EQ(run.status, 0) << run.err;
    const auto data = testing_support::open_named("glyphs");
    SampleBatch batch;
    data.pair.test->read(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}, batch);
    for (const ImageView& image : batch.images) {
      pictures_.push_back({1, 28, 28, Bytes(image.pixels, image.pixels + 28 * 28)});
    }
    labels_ = batch.labels;
  }
  static void TearDownTestSuite() {
    trained_.reset();
    pictures_.clear();
  }

  static std::string run() { return trained_->file("run"); }
  static Words predict(const Words& more) { return with({"predict", "--checkpoint", run(), "--quiet"}, more); }
  void write(const std::string& name, const Bytes& bytes) const { folder_.write(name, bytes); }
  std::string file(const std::string& name) const { return folder_.file(name); }
  static std::string label(std::size_t picture) { return std::to_string(labels_[picture]); }

  static std::optional<ScratchFolder> trained_;
  static std::vector<Picture> pictures_;
  static std::vector<std::int32_t> labels_;
  ScratchFolder folder_;
};
std::optional<ScratchFolder> Predict::trained_;
std::vector<Picture> Predict::pictures_;
std::vector<std::int32_t> Predict::labels_;

Picture in_color(const Picture& gray, int red = 255) {
  Picture color{3, gray.height, gray.width, {}};
  for (const std::uint8_t value : gray.pixels) {
    const auto first = static_cast<std::uint8_t>(value * red / 255);
    color.pixels.insert(color.pixels.end(), {first, value, value});
  }
  return color;
}

Picture twice_as_large(const Picture& gray) {
  Picture large{1, 2 * gray.height, 2 * gray.width, {}};
  for (int y = 0; y < large.height; ++y) {
    for (int x = 0; x < large.width; ++x) {
      large.pixels.push_back(gray.pixels[static_cast<std::size_t>(y / 2 * gray.width + x / 2)]);
    }
  }
  return large;
}

TEST_F(Predict, WritesTheSameBytesOnAnyNumberOfRanks) {
  Words outputs;
  for (const int ranks : {0, 1, 2, 3}) {
    const std::string name = file(std::to_string(ranks));
    const ChildResult result = run_trainer(
        ranks, predict({"--top", "3", "--probabilities", "--csv", name + ".csv", "--json", name + ".json"}));
    ASSERT_EQ(result.status, 0) << result.err;
    outputs.push_back(read_text(name + ".csv") + read_text(name + ".json") + result.out);
    EXPECT_EQ(outputs.back(), outputs.front()) << ranks << " ranks";
  }
  EXPECT_EQ(count(outputs.front(), "\n"), 1 + 4000 + 4000 + 1);
}

TEST_F(Predict, EndsWithTheLineOfAnEvaluationAndItsAccuracy) {
  const ChildResult evaluated = run_trainer({"eval", "--checkpoint", run()});
  ASSERT_EQ(evaluated.status, 0) << evaluated.err;
  const ChildResult result = run_trainer(2, predict({"--csv", file("all.csv")}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, evaluated.out);

  const Rows rows = rows_of(read_text(file("all.csv")));
  ASSERT_EQ(rows.size(), 4001u);
  EXPECT_THAT(rows[0], ElementsAre("image", "label", "predicted", "probability"));
  int right = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i][0], std::to_string(i - 1));
    if (rows[i][1] == rows[i][2]) ++right;
  }
  EXPECT_GT(right, 2000);
  EXPECT_NEAR(number(last_word(evaluated.out, "acc ")), right / 4000.0, 0.000051) << "four decimals";
}

TEST_F(Predict, GivesProbabilitiesThatReadBackAndAddUp) {
  const ChildResult result = run_trainer(predict({"--csv", "-", "--top", "20", "--probabilities"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, mentions("test acc 0."));  // rows alone are on stdout
  const Rows rows = rows_of(result.out);
  ASSERT_EQ(rows.size(), 4001u);
  ASSERT_EQ(rows[0].size(), 2u + 2 * 10 + 10);  // --top is limited to the number of classes
  EXPECT_EQ(rows[0][4], "predicted_2");
  EXPECT_EQ(rows[0].back(), "p_9");
  for (std::size_t i = 1; i < rows.size(); ++i) {
    double sum = 0;
    double before = 1;
    for (std::size_t rank = 0; rank < 10; ++rank) {
      const std::string& name = rows[i][2 + 2 * rank];
      const std::string& probability = rows[i][3 + 2 * rank];
      EXPECT_EQ(probability, rows[i][22 + std::stoul(name)]);
      EXPECT_LE(number(probability), before);
      before = number(probability);
      sum += before;
    }
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

TEST_F(Predict, TakesImageFilesInTheNetworksSizeAndChannels) {
  for (std::size_t i = 0; i < pictures_.size(); ++i) {
    const std::string name = "in/" + std::to_string(i);
    write(name + "a.png", testing_support::png_of(pictures_[i]));
    write(name + "b.png", testing_support::png_of(in_color(pictures_[i])));
    write(name + "c.JPG", testing_support::jpeg_of(in_color(pictures_[i])));
    write("in/deeper/" + std::to_string(i) + ".jpeg", testing_support::jpeg_of(twice_as_large(pictures_[i])));
  }
  write("in/notes.txt", {'x'});
  const ChildResult whole = run_trainer(predict({"--csv", file("set.csv")}));
  const Rows set = rows_of(read_text(file("set.csv")));
  const ChildResult result = run_trainer(2, {"predict", "--checkpoint", run(), file("in"), "--csv", file("files.csv")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "24 images\n");
  EXPECT_EQ(count(result.err, "1 entries are not image files and are skipped: first " + file("in/notes.txt")), 1);
  EXPECT_EQ(count(result.err, "the files given: in color, converted to gray for the network"), 1) << result.err;
  const Rows rows = rows_of(read_text(file("files.csv")));
  ASSERT_EQ(rows.size(), 1u + 24);
  EXPECT_THAT(rows[0], ElementsAre("image", "predicted", "probability"));
  for (std::size_t i = 0; i < pictures_.size(); ++i) {
    const Words& expected = set[1 + i];
    for (std::size_t form = 0; form < 2; ++form) {
      const Words& row = rows[1 + 3 * i + form];
      EXPECT_EQ(row[0], file("in/" + std::to_string(i) + (form == 0 ? "a.png" : "b.png")));
      EXPECT_EQ(row[1], expected[2]);
      EXPECT_NEAR(number(row[2]), number(expected[3]), 1e-4);
    }
    EXPECT_EQ(rows[1 + 3 * i + 2][1], expected[2]) << "as JPEG";
    EXPECT_EQ(rows[19 + i][0], file("in/deeper/" + std::to_string(i) + ".jpeg"));
  }
}

TEST_F(Predict, PrintsATableForAFewImages) {
  write("one.png", testing_support::png_of(pictures_[0]));
  write("another one.png", testing_support::png_of(in_color(pictures_[1], 128)));
  const ChildResult result = run_trainer(predict({"--top", "2", file("one.png"), file("another one.png")}));
  ASSERT_EQ(result.status, 0) << result.err;
  const std::size_t at = result.out.find("predicted");
  ASSERT_NE(at, std::string::npos) << result.out;
  const std::size_t width = result.out.find('\n') + 1;
  EXPECT_THAT(result.out, mentions("image"));
  EXPECT_EQ(result.out.find(file("one.png")), width);
  EXPECT_THAT(result.out, mentions("\n2 images\n"));
  EXPECT_THAT(run_trainer(predict({})).out,
              mentions("\nand 3960 more: --csv FILE or --json FILE has all of them\ntest loss"));
}

TEST_F(Predict, TakesAFolderWithoutLabelsAsADataSet) {
  for (std::size_t i = 0; i < pictures_.size(); ++i) {
    write("flat/" + std::to_string(i) + ".png", testing_support::png_of(pictures_[i]));
  }
  const ChildResult as_data = run_trainer(predict({"--data", file("flat"), "--csv", "-"}));
  ASSERT_EQ(as_data.status, 0) << as_data.err;
  EXPECT_EQ(as_data.out, run_trainer(predict({file("flat"), "--csv", "-"})).out);
  EXPECT_EQ(count(as_data.out, "\n"), 7);
  EXPECT_EQ(run_trainer({"--data", file("flat")}).status, 65) << "it is nothing to train on";
}

TEST_F(Predict, KnowsClassesByTheirNames) {
  for (std::size_t i = 0; i < pictures_.size(); ++i) {
    write("named/" + label(i) + "/" + std::to_string(i) + ".png", testing_support::png_of(pictures_[i]));
  }
  const ChildResult result = run_trainer(predict({"--data", file("named"), "--csv", file("named.csv")}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, mentions("all acc ", ", 6 images\n"));
  for (const Words& row : rows_of(read_text(file("named.csv")))) {
    EXPECT_TRUE(row[0] == "image" || row[0].find("/named/" + row[1] + "/") != std::string::npos) << row[0];
  }
  EXPECT_EQ(run_trainer({"eval", "--checkpoint", run(), "--data", file("named")}).out, result.out);

  write("named/a,b/6.png", testing_support::png_of(pictures_[0]));
  const ChildResult strange = run_trainer({"predict", "--checkpoint", run(), "--data", file("named")});
  ASSERT_EQ(strange.status, 0) << strange.err;
  EXPECT_THAT(strange.err, mentions("labels are ignored: named has the class 'a,b', which the network does not"));
  EXPECT_THAT(strange.out, mentions("\n7 images\n"));
  EXPECT_THAT(run_trainer(2, {"eval", "--checkpoint", run(), "--data", file("named"), "--on", "train"}),
              ends(65, "has the class 'a,b', which the network does not have"));
}

TEST_F(Predict, QuotesNamesInCsv) {
  for (int i = 0; i < 4; ++i) {
    const auto dark = static_cast<std::uint8_t>(i % 2 * 200);
    write(std::string(i % 2 == 0 ? "set/a,\"b\"/" : "set/c/") + std::to_string(i) + ".png",
          testing_support::png_of({1, 8, 8, Bytes(64, dark)}));
  }
  ASSERT_EQ(run_trainer({"--data", file("set"), "--model", "mlp", "--epochs", "1", "--out", file("pets")}).status, 0);
  const ChildResult result = run_trainer(
      {"predict", "--checkpoint", file("pets"), "--csv", "-", "--json", file("rows.json"), "--probabilities"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, mentions(R"(image,label,predicted,probability,"p_a,""b""",p_c)"));
  EXPECT_EQ(count(result.out, R"(.png","a,""b""",)"), 2) << result.out;
  std::istringstream lines(read_text(file("rows.json")));
  int objects = 0;
  for (std::string line; std::getline(lines, line); ++objects) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json.at("label"), objects < 2 ? "a,\"b\"" : "c");
    EXPECT_EQ(json.at("probabilities").at(json.at("predicted").get<std::string>()), json.at("probability"));
  }
  EXPECT_EQ(objects, 4);
}

TEST_F(Predict, RefusesAnImageThatCannotBeDecodedOrReportsItInItsRow) {
  write("in/1.png", testing_support::png_of(pictures_[0]));
  Bytes torn = testing_support::png_of(pictures_[1]);
  torn.resize(torn.size() - 40);
  write("in/2.png", torn);
  write("in/3.png", testing_support::png_of(pictures_[2]));
  write("in/4.png", {'n', 'o'});
  for (const int ranks : {0, 2}) {
    EXPECT_THAT(run_trainer(ranks, predict({file("in"), "--csv", file("out.csv")})),
                ends(65, "/in/", "cannot be decoded"));
    EXPECT_FALSE(fs::exists(file("out.csv")));
    EXPECT_EQ(folder_.entries(), 1u);
  }
  const ChildResult result =
      run_trainer(2, predict({file("in"), "--skip-bad-images", "--csv", "-", "--json", file("rows")}));
  ASSERT_EQ(result.status, 0) << result.err;
  const Rows rows = rows_of(result.out);
  ASSERT_EQ(rows.size(), 5u) << result.out;
  EXPECT_EQ(rows[0].back(), "problem");
  EXPECT_EQ(rows[1][1], label(0));
  EXPECT_EQ(rows[1].back(), "");
  EXPECT_EQ(rows[2][0], file("in/2.png"));
  EXPECT_EQ(rows[2][1], "");
  EXPECT_THAT(rows[2][3], mentions("cannot be decoded"));
  EXPECT_EQ(rows[3][1], label(2));
  EXPECT_THAT(rows[4][3], mentions("neither a JPEG nor a PNG nor a TIFF file"));
  EXPECT_THAT(result.err, mentions("2 images, 2 skipped\n"));
  EXPECT_THAT(read_text(file("rows")), mentions("in/4.png\",\"problem\":\"the image"));
}

TEST_F(Predict, RefusesOptionsThatContradictEachOther) {
  const std::string image = file("one.png");
  write("one.png", testing_support::png_of(pictures_[0]));
  const std::vector<std::pair<int, Words>> cases{{64, {image, "--data", "glyphs"}},
                                                 {64, {image, "--on", "test"}},
                                                 {64, {"--csv", "-", "--json", "-"}},
                                                 {64, {image, "--probabilities"}},
                                                 {64, {image, "--top", "0"}},
                                                 {74, {file("none.png")}},
                                                 {65, {"--data", folder_.path(), "--on", "test"}},
                                                 {73, {image, "--csv", "/proc/none/x.csv"}}};
  for (const auto& [status, words] : cases) {
    const ChildResult result = run_trainer(status == 64 ? 0 : 2, predict(words));
    EXPECT_EQ(result.status, status) << ::testing::PrintToString(words) << result.err;
    EXPECT_EQ(count(result.err, "trainer: "), 1) << result.err;
  }
  EXPECT_THAT(run_trainer(predict({image, "--top", "0"})).err, mentions("--top 0: must be an integer from 1 to "));
  EXPECT_EQ(run_trainer({"predict", image}).status, 64);
  EXPECT_EQ(run_trainer({"predict", "--checkpoint", "none.h5", image}).status, 66);
}

TEST_F(Predict, NeedsACheckpointThatDescribesItsData) {
  LoadedCheckpoint loaded = load_checkpoint(run() + "/checkpoints/step-00000060.h5");
  EXPECT_THAT(loaded.state.data,
              mentions(R"({"image":[1,28,28],"keeps_short_side":false,"classes":10,"class_names":["0","1")"));
  loaded.state.data.clear();
  const std::string early = CheckpointStore(file("early")).save(loaded.state).path;
  EXPECT_THAT(run_trainer(2, {"predict", "--checkpoint", early}),
              ends(66, "was saved by an early version, without the image size and class names"));
  EXPECT_EQ(run_trainer({"eval", "--checkpoint", early}).out, run_trainer({"eval", "--checkpoint", run()}).out);
  loaded.state.data = R"({"image":[1,28],"classes":10,"class_names":[]})";
  const std::string strange = CheckpointStore(file("strange")).save(loaded.state).path;
  EXPECT_EQ(run_trainer({"predict", "--checkpoint", strange}).status, 66);
}

TEST_F(Predict, LabelsAllDataSetsAndDataFiles) {
  const std::string data = file("set.h5");
  ASSERT_EQ(run_trainer({"data", "convert", "synthetic:300x3x10x12:10", data}).status, 0);
  const ChildResult result =
      run_trainer(3, {"predict", "--checkpoint", run(), "--data", data, "--on", "all", "--csv", file("all.csv")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, mentions("synthetic:300x3x10x12:10: in color, converted to gray for the network",
                                   "10 x 12, resized to 28 x 28 for the network"));
  EXPECT_THAT(result.out, mentions("train loss ", ", 30 images\n"));
  const Rows rows = rows_of(read_text(file("all.csv")));
  ASSERT_EQ(rows.size(), 331u);
  EXPECT_THAT(rows[0], ElementsAre("image", "set", "label", "predicted", "probability"));
  EXPECT_EQ(rows[300][1], "train");
  EXPECT_EQ(rows[301][0], "0");
  EXPECT_EQ(rows[301][1], "test");
}

}  // namespace
}  // namespace tutti::test
