// What a report makes of a run's folder, and of a network's scores.

#include "tutti/base/error.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/storage/whole_file.hpp"

#include "report/axis.hpp"
#include "report/figure_text.hpp"
#include "report/page.hpp"
#include "report/picture.hpp"
#include "support/markup.hpp"
#include "support/overwrite.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace tutti {
namespace {

using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;
using ::testing::StartsWith;

const std::string kNoScores = "Not known here: the reason.";

std::string run_line(int ranks, const std::string& model = "lenet") {
  return fmt::format(R"({{"event":"run","command_line":["trainer","--out","my run"],"device":"cpu","ranks":{},)"
                     R"("parts":8,"model":"{}","data":"/sets/glyphs","exchange":"exact"}})"
                     "\n",
                     ranks, model);
}

std::string epoch_line(int epoch, double loss, const std::string& test_accuracy = "0.975") {
  return fmt::format(R"({{"event":"epoch","epoch":{},"step":{},"train_loss":{},"train_acc":0.9,"test_loss":0.25,)"
                     R"("test_acc":{},"seconds":1.5,"images_per_second":12345.6,"lr":0.05,"digest":"00ff"}})"
                     "\n",
                     epoch, 100 * epoch, loss, test_accuracy);
}

std::string time_line(int epoch, int late_rank, double waiting) {
  return fmt::format(R"({{"event":"time","epoch":{0},"step":{1},"seconds":4.0,"data":0.25,"compute":3.0,)"
                     R"("communication":0.25,"waiting":{2},"evaluation":0,"checkpoint":0,"other":0,)"
                     R"("worst":{{"rank":{3},"host":"n{3}","phase":"data","seconds":{2}}},)"
                     R"("ranks":[{{"compute":4.0}},{{"compute":2.0,"waiting":2.0}}]}})"
                     "\n",
                     epoch, 100 * epoch, waiting, late_rank);
}

std::string checkpoint_line(int step, const std::string& more = "") {
  return fmt::format(R"({{"event":"checkpoint","step":{0},"file":"step-{0}.h5","bytes":1048576,"seconds":0.1,)"
                     R"("stall_seconds":0.002{1}}})"
                     "\n",
                     step, more);
}

class ReportPage : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& content) {
    overwrite(folder_.file(name), std::as_bytes(std::span(content)));
  }
  MarkupNode page(const std::string& metrics, const ScoresOrReason& scores = kNoScores) {
    put("metrics.jsonl", metrics);
    return read_markup(report_page(read_run_history(folder_.path()), scores));
  }
  static std::string heading(const MarkupNode& page) { return page.all("h1").front()->text; }
  static std::string standing(const MarkupNode& page) { return page.all("header").front()->all("span").front()->text; }
  static const MarkupNode& table(const MarkupNode& page, const std::string& section, std::size_t which = 0) {
    return *page.by_id(section).all("table").at(which);
  }
  static std::vector<std::string> titles(const MarkupNode& node, const std::string& of) {
    std::vector<std::string> told;
    for (const MarkupNode* each : node.all(of)) told.push_back(each->all("title").front()->text);
    return told;
  }

  ScratchFolder folder_;
};

// Three images of classes 0, 1 and 2, of which the last is taken for the first, as surely as asked for; repeated.
ScoredSet scored(std::vector<std::string> names, double sureness = 0.9, int times = 1) {
  const std::size_t classes = names.size();
  ScoredSet set{.checkpoint = "step-00000200.h5",
                .step = 200,
                .set = "test",
                .data = "glyphs",
                .confusion = Confusion(std::move(names)),
                .sums = {}};
  WorstMistakes worst(4);
  for (int time = 0; time < times; ++time) {
    std::vector<float> logits(3 * classes, -1000);
    std::vector<SampleScore> samples;
    for (std::int32_t label = 0; label < 3; ++label) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(label) * classes);
      const bool wrong = label == 2;
      row[wrong ? 0 : label] = 0;
      if (wrong) row[2] = static_cast<float>(std::log(1 / sureness - 1));
      samples.push_back({.exponentials = wrong ? 1 / sureness : 1, .label = label, .predicted = wrong ? 0 : label});
    }
    const ChunkScores chunk{.first = 3 * time, .classes = classes, .samples = samples, .logits = logits};
    set.confusion.add(chunk);
    worst.add(chunk);
  }
  set.sums = {.loss_steps = times * (3 << 24), .correct = 2 * times, .samples = 3 * times};
  for (const Mistake& mistake : worst.sorted()) set.pictures.push_back({mistake, "data:image/png;base64,AAAA"});
  return set;
}

TEST_F(ReportPage, SaysInOneSentenceHowItCameOut) {
  const std::string run = run_line(4);
  EXPECT_EQ(heading(page(run + epoch_line(1, 0.5) + epoch_line(2, 0.25, "0.9948"))),
            "After 2 epochs, lenet names 99.48 % of the test images of glyphs rightly");
  EXPECT_EQ(heading(page(run + epoch_line(1, 0.5, "null"))),
            "After 1 epoch, lenet names 90.00 % of the training images of glyphs rightly; it was not tested");
  EXPECT_EQ(heading(page(run)), "No epoch of lenet on glyphs has ended yet");
}

TEST_F(ReportPage, AsksNothingOfTheNetworkAndRunsNoScript) {
  const MarkupNode root = page(run_line(2) + epoch_line(1, 0.5) + time_line(1, 0, 0.5), scored({"a", "b", "c"}));
  EXPECT_TRUE(root.all("script").empty());
  for (const char* name : {"a", "link", "img", "svg", "use", "image", "style"}) {
    for (const MarkupNode* node : root.all(name)) {
      for (const char* key : {"href", "src", "xlink:href", "srcset"}) {
        const std::string address = node->attribute(key);
        EXPECT_TRUE(address.empty() || address.starts_with("#") || address.starts_with("data:")) << address;
      }
      EXPECT_THAT(node->text, Not(HasSubstr("url(")));
      EXPECT_THAT(node->text, Not(HasSubstr("@import")));
    }
  }
  EXPECT_EQ(root.all("meta")[1]->attribute("content"), "default-src 'none'; style-src 'unsafe-inline'; img-src data:");
}

TEST_F(ReportPage, ShowsTheLastRecordOfEveryEpochAsMetricsHaveIt) {
  const MarkupNode root =
      page(run_line(4) + epoch_line(1, 0.5) + epoch_line(2, 0.75) + run_line(3) + epoch_line(2, 0.12345));
  EXPECT_THAT(
      table(root, "curves").rows(),
      ElementsAre(Contains("train loss"),
                  ElementsAre("1", "100", "0.5000", "0.9000", "0.2500", "0.9750", "1.5", "12346", "0.05", "00ff"),
                  ElementsAre("2", "200", "0.1235", "0.9000", "0.2500", "0.9750", "1.5", "12346", "0.05", "00ff")));
  const auto charts = root.by_id("curves").all("figure");
  ASSERT_EQ(charts.size(), 4u);
  EXPECT_THAT(titles(*charts[0], "circle"), ElementsAre("epoch 1: train 0.5000", "epoch 2: train 0.1235",
                                                        "epoch 1: test 0.2500", "epoch 2: test 0.2500"));
  EXPECT_THAT(titles(*charts[1], "circle"), Contains("epoch 2: test 97.50 %"));
  EXPECT_THAT(titles(*charts[2], "circle"), ElementsAre("epoch 1: lr 0.05", "epoch 2: lr 0.05"));
  EXPECT_THAT(titles(*charts[3], "circle"), Contains("epoch 1: images/s 12,346"));
}

TEST_F(ReportPage, DrawsPointsWhereTheirFiguresLie) {
  const MarkupNode root = page(run_line(1) + epoch_line(1, 1.0) + epoch_line(2, 0.5));
  const MarkupNode& chart = *root.by_id("curves").all("figure")[0];
  std::map<std::string, double> ticks;
  for (const MarkupNode* label : chart.all("text")) {
    if (label->attribute("class") == "end") ticks[label->text] = std::stod(label->attribute("y")) - 3.5;
  }
  const auto marks = chart.all("circle");
  EXPECT_NEAR(std::stod(marks[0]->attribute("cy")), ticks.at("1"), 0.11);
  const double middle = (ticks.at("0.4") + ticks.at("0.6")) / 2;
  EXPECT_NEAR(std::stod(marks[1]->attribute("cy")), middle, 0.11);
  EXPECT_LT(std::stod(marks[0]->attribute("cx")), std::stod(marks[1]->attribute("cx")));
}

TEST_F(ReportPage, EscapesWhatComesFromFiles) {
  const std::string evil = "<script>alert('x') & \\\"more\\\"<b>";
  const std::string shown = "<script>alert('x') & \"more\"<b>";
  put("config.toml", "data = \"" + evil + "\"\n");
  put("exit.json", "{\"status\": 88, \"reason\": \"" + evil + "\"}");
  ScoredSet set = scored({shown, "b", "c"});
  set.checkpoint = set.data = shown;
  const MarkupNode root = page(run_line(4, evil) + epoch_line(1, 0.5) + time_line(1, 1, 0.5) +
                                   checkpoint_line(100, ",\"failure\":\"" + evil + "\"") +
                                   "{\"event\":\"skipped\",\"step\":7,\"rank\":0,\"tensor\":\"" + evil + "\"}\n",
                               set);
  EXPECT_TRUE(root.all("script").empty());
  EXPECT_THAT(heading(root), HasSubstr(shown));
  EXPECT_THAT(table(root, "classes").rows()[0], Contains(shown));
  EXPECT_THAT(root.by_id("record").text, HasSubstr(shown));
  EXPECT_THAT(root.by_id("events").text, HasSubstr(shown));
  EXPECT_EQ(root.by_id("mistakes").all("img")[0]->attribute("alt"), "c, taken for " + shown);
  EXPECT_EQ(text("a\xFF\x01z").markup(), "a\xEF\xBF\xBD\xEF\xBF\xBDz");
}

TEST_F(ReportPage, ShowsWhatEachClassIsTakenFor) {
  const MarkupNode root = page(run_line(1), scored({"ankle boot", "bag", "coat"}, 0.9, 2));
  EXPECT_THAT(
      root.by_id("classes").text,
      HasSubstr("6 test images of glyphs, named by step-00000200.h5 (step 200): 66.67 % rightly, mean loss 1.0"));
  EXPECT_THAT(
      table(root, "classes").rows(),
      ElementsAre(ElementsAre("is \\ taken for", "ankle boot", "bag", "coat"), ElementsAre("ankle boot", "2", "·", "·"),
                  ElementsAre("bag", "·", "2", "·"), ElementsAre("coat", "2", "·", "·")));
  EXPECT_THAT(table(root, "classes", 1).rows(),
              ElementsAre(Contains("named rightly"), ElementsAre("coat", "2", "0 %", "", "-", "ankle boot (2)"),
                          ElementsAre("ankle boot", "2", "100 %", "", "50.00 %", "-"),
                          ElementsAre("bag", "2", "100 %", "", "100 %", "-")));
}

TEST_F(ReportPage, OfManyClassesShowsTheMostConfused) {
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back(fmt::format("class {}", i));
  const MarkupNode root = page(run_line(1), scored(names));
  EXPECT_THAT(root.by_id("classes").text, HasSubstr("the 24 of 40 classes that are confused most"));
  const auto rows = table(root, "classes").rows();
  EXPECT_EQ(rows.size(), 25u);
  EXPECT_EQ(rows[0].back(), "others");
  EXPECT_THAT(rows[0], Contains("class 2"));
  EXPECT_EQ(table(root, "classes", 1).rows().size(), 41u);
}

TEST_F(ReportPage, ShowsTheSurestMistakesFirst) {
  ScoredSet set = scored({"a", "b", "c"}, 0.75, 6);
  const MarkupNode root = page(run_line(1), set);
  const MarkupNode& section = root.by_id("mistakes");
  EXPECT_THAT(section.text, HasSubstr("The 4 of 6 mistakes that it is surest of."));
  ASSERT_EQ(section.all("img").size(), 4u);
  EXPECT_EQ(section.all("figcaption")[0]->text, "c taken for asure by 75.00 %; of the truth by 25.00 %; image 2");
  set.has_pictures = false;
  EXPECT_THAT(page(run_line(1), set).by_id("mistakes").text, HasSubstr("left out (--no-images)"));
}

TEST(WorstMistakes, KeepTheSurestOfMany) {
  WorstMistakes worst(3);
  std::vector<float> logits;
  std::vector<SampleScore> samples;
  for (int i = 0; i < 50; ++i) {
    const double sureness = 0.5 + 0.01 * ((i * 37) % 50);
    logits.insert(logits.end(), {0, static_cast<float>(std::log(1 / sureness - 1))});
    samples.push_back({.exponentials = 1 / sureness, .label = i % 5 == 0 ? 0 : 1, .predicted = 0});
  }
  worst.add({.first = 100, .classes = 2, .samples = samples, .logits = logits});
  const auto mistakes = worst.sorted();
  ASSERT_EQ(mistakes.size(), 3u);
  EXPECT_EQ(mistakes[0].sample, 127);
  EXPECT_NEAR(mistakes[0].probability, 0.99, 1e-6);
  EXPECT_NEAR(mistakes[0].probability_of_label, 0.01, 1e-6);
  EXPECT_NEAR(mistakes[1].probability, 0.98, 1e-6);
  EXPECT_NEAR(mistakes[2].probability, 0.97, 1e-6);
}

TEST_F(ReportPage, TellsWhereTheTimeWentAndWhoWasWaitedFor) {
  const MarkupNode root = page(run_line(2) + epoch_line(1, 0.5) + time_line(1, 0, 0.5) + time_line(2, 1, 2.5));
  const MarkupNode& section = root.by_id("time");
  const auto charts = section.all("figure");
  ASSERT_EQ(charts.size(), 2u);
  EXPECT_THAT(titles(*charts[0], "rect"), Contains("epoch 1: compute 3 s, 75 %"));
  EXPECT_THAT(titles(*charts[0], "rect"), Contains("epoch 2: waiting 2.5 s, 42 %"));
  EXPECT_THAT(titles(*charts[1], "rect"),
              ElementsAre("rank 0: compute 8 s, 100 %", "rank 1: compute 4 s, 50 %", "rank 1: waiting 4 s, 50 %"));
  EXPECT_THAT(table(root, "time").rows()[1], ElementsAre("compute", "6.00 s", "60.00 %", HasSubstr("backward")));
  EXPECT_THAT(table(root, "time", 1).rows(),
              ElementsAre(Contains("rank"), ElementsAre("1 on n1", "2.50 s", "1", "data"),
                          ElementsAre("0 on n0", "0.50 s", "1", "data")));
}

TEST_F(ReportPage, TellsWhatHappenedInItsOrder) {
  put("exit.json", R"({"status":88,"rank":1,"host":"n1","reason":"the loss is not finite"})");
  const std::string metrics =
      run_line(4) + checkpoint_line(50) + checkpoint_line(60, R"(,"failure":"disk full")") + checkpoint_line(90) +
      epoch_line(1, 0.5) + run_line(3) +
      R"({"event":"divergence","step":80,"equal_after":70,"ranks":[2],"tensors":["w"],"heals":true})" + "\n" +
      R"({"event":"skipped","step":85,"rank":0,"tensor":"conv1/weight"})" + "\nno record\n" + epoch_line(1, 0.4);
  const MarkupNode root = page(metrics);
  EXPECT_THAT(
      table(root, "events").rows(),
      ElementsAre(Contains("what"), ElementsAre("0", "started", "4 ranks, cpu"),
                  ElementsAre("50", "went on", "3 ranks, cpu"), ElementsAre("60", "a checkpoint failed", "disk full"),
                  ElementsAre("80", "the replicas were not equal", HasSubstr("went back to step 70")),
                  ElementsAre("85", "the step was left out", "conv1/weight was not finite at rank 0"),
                  ElementsAre("100", "ended with status 88", "the loss is not finite (rank 1 on n1)")));
  EXPECT_THAT(root.by_id("events").text, HasSubstr("1 line of metrics.jsonl is no record, and was passed over."));
  EXPECT_THAT(root.by_id("events").text, HasSubstr("2 checkpoints saved, beside training, which stood still for 6 ms"));
  EXPECT_THAT(table(root, "events", 1).rows()[2],
              ElementsAre("60", "step-60.h5", "1.0 MiB", "0.10 s", "2 ms", "failed"));
  EXPECT_EQ(standing(root), "ended with status 88 after 100 steps: the loss is not finite");
  EXPECT_THAT(root.by_id("curves").all("figure")[0]->text, HasSubstr("the run went on"));
}

TEST_F(ReportPage, TellsHowTheRunStands) {
  const std::string metrics = run_line(2) + epoch_line(1, 0.5);
  EXPECT_EQ(standing(page(metrics)), "done after 100 steps");
  put("config.toml", "epochs = 5\n");
  EXPECT_EQ(standing(page(metrics)), "ended in epoch 2 of 5, leaving no reason");
  put("config.toml", "epochs = 1\n");
  EXPECT_EQ(standing(page(metrics)), "done after 100 steps");
  const FolderLock lock(folder_.path(), 0, Log(0, "here", true));
  EXPECT_EQ(standing(page(metrics)), "under way, 100 steps done");
  EXPECT_THAT(heading(page(metrics)), StartsWith("So far, after 1 epoch, "));
}

TEST_F(ReportPage, ShowsWhatRanAndItsOptions) {
  put("config.toml", "batch-size = 256\nlr = 0.05\n");
  const MarkupNode root = page(run_line(4) + checkpoint_line(50) + run_line(3) + epoch_line(1, 0.5));
  const auto rows = table(root, "record").rows();
  EXPECT_THAT(rows[0], ElementsAre("", "start", "went on at step 50"));
  EXPECT_THAT(rows, Contains(ElementsAre("ranks", "4", "3")));
  EXPECT_THAT(rows, Contains(ElementsAre("command line", "trainer --out 'my run'", "trainer --out 'my run'")));
  EXPECT_EQ(root.by_id("record").all("pre")[0]->text, "batch-size = 256\n");
  EXPECT_THAT(root.all("header").front()->text, HasSubstr("4 ranks, then 3 ranks · batch 256 in 8 parts · fp32"));
}

TEST_F(ReportPage, SaysInItsPlaceWhatIsMissing) {
  const MarkupNode root = page(run_line(1));
  EXPECT_THAT(root.by_id("curves").text, HasSubstr("nothing recorded"));
  EXPECT_THAT(root.by_id("classes").text, HasSubstr(kNoScores));
  EXPECT_THAT(root.by_id("mistakes").text, HasSubstr(kNoScores));
  EXPECT_THAT(root.by_id("time").text, HasSubstr("No epoch has told where its time went."));
  EXPECT_THAT(root.by_id("events").text, HasSubstr("No checkpoint was saved."));
  EXPECT_THAT(root.by_id("record").text, HasSubstr("There is no config.toml"));
  put("config.toml", "an-option-of-tomorrow = 1\n");
  EXPECT_THAT(page(run_line(1)).by_id("record").text, HasSubstr("an-option-of-tomorrow = 1"));
}

TEST_F(ReportPage, TakesRecordsThatLackAnything) {
  const MarkupNode root = page(
      "{\"event\":\"epoch\",\"step\":5}\n{\"event\":\"time\",\"step\":5,\"worst\":7,\"ranks\":{}}\n{\"event\":\"run\"}"
      "\n"
      "{\"event\":\"checkpoint\",\"step\":-3}\n{\"event\":\"step\",\"step\":9e3}\n{\"event\":\"epoch\",\"step\":8,"
      "\"train_loss\":1e308,\"test_acc\":-1e300,\"lr\":\"x\",\"images_per_second\":1e300}\n");
  EXPECT_EQ(heading(root), "After 0 epochs, it is not known what the network makes of its data");
}

TEST_F(ReportPage, RefusesAFolderWithoutRecords) {
  const Error none = thrown_by([&] { read_run_history(folder_.path()); });
  EXPECT_EQ(none.source(), ErrorSource::input);
  EXPECT_THAT(none.what(), EndsWith("holds no metrics.jsonl: give the folder that a training had as --out"));
  put("metrics.jsonl", "nothing\n");
  EXPECT_THAT(thrown_by([&] { read_run_history(folder_.path()); }).what(), HasSubstr("holds no records"));
}

TEST(Axis, HoldsItsExtentBetweenRoundNumbers) {
  EXPECT_THAT(linear_axis({0, 0.9}, 5).ticks.size(), 6u);
  EXPECT_DOUBLE_EQ(linear_axis({0, 0.9}, 5).high, 1);
  const Axis narrow = linear_axis({0.971, 0.9948}, 5);
  EXPECT_LE(narrow.low, 0.971);
  EXPECT_GE(narrow.high, 0.9948);
  EXPECT_LE(narrow.ticks.size(), 7u);
  EXPECT_GT(linear_axis({3, 3}, 5).high, linear_axis({3, 3}, 5).low);
  EXPECT_THAT(linear_axis({0, 2}, 7, true).ticks, ElementsAre(0, 1, 2));
  const Axis logarithmic = logarithmic_axis({0.0013, 7}, 5);
  EXPECT_THAT(logarithmic.ticks, Pointwise(DoubleNear(1e-9), {0.01, 0.1, 1.0}));
  EXPECT_THAT(logarithmic_axis({0.03, 0.46}, 5).ticks, Pointwise(DoubleNear(1e-9), {0.05, 0.1, 0.2, 0.5}));
  EXPECT_NEAR(logarithmic.place(0.1) - logarithmic.place(0.01), logarithmic.place(0.4) - logarithmic.place(0.04), 1e-9);
}

TEST(FigureText, IsNeverAllOrNothingWhereItIsNot) {
  EXPECT_EQ(percent_text(1), "100 %");
  EXPECT_EQ(percent_text(0.999999), "> 99.99 %");
  EXPECT_EQ(percent_text(0.00001), "< 0.01 %");
  EXPECT_EQ(percent_text(0), "0 %");
  EXPECT_EQ(seconds_text(1.35e-10), "0 ms");
  EXPECT_EQ(seconds_text(0.012), "12 ms");
  EXPECT_EQ(seconds_text(3.21), "3.21 s");
  EXPECT_EQ(seconds_text(312), "5 min 12 s");
  EXPECT_EQ(seconds_text(7500), "2 h 5 min");
  EXPECT_EQ(count_text(1234567), "1,234,567");
  EXPECT_EQ(count_text(-123), "-123");
}

TEST(Picture, IsSmallAndInThePage) {
  std::vector<std::uint8_t> pixels(3 * 300 * 100);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i / 30000 * 100);
  const auto dimension = [](const std::vector<std::byte>& png, std::size_t at) {
    return std::to_integer<int>(png[at + 2]) * 256 + std::to_integer<int>(png[at + 3]);
  };
  const auto large = thumbnail({pixels.data(), {3, 300, 100}}, 160);
  EXPECT_EQ(dimension(large, 16), 50);
  EXPECT_EQ(dimension(large, 20), 150);
  EXPECT_EQ(std::to_integer<int>(large[25]), 2) << "colour";
  const auto odd = thumbnail({pixels.data(), {2, 7, 161}}, 160);
  EXPECT_EQ(dimension(odd, 16), 81);
  EXPECT_EQ(dimension(odd, 20), 4);
  EXPECT_EQ(std::to_integer<int>(odd[25]), 0) << "gray";
  const auto base64 = [](std::string_view words) { return data_address(std::as_bytes(std::span(words))); };
  EXPECT_EQ(base64("Man"), "data:image/png;base64,TWFu");
  EXPECT_EQ(base64("Ma"), "data:image/png;base64,TWE=");
  EXPECT_EQ(base64("M"), "data:image/png;base64,TQ==");
}

}  // namespace
}  // namespace tutti
