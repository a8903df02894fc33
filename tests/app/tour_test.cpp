// The tour as a student takes it: what is printed is read, and has to hold.

#include "support/child_process.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The screens of a tour by the names of their stations, each with its heading and the empty line behind it.
std::map<std::string, Lines> screens_of(const std::string& out) {
  static const std::regex heading(R"(Station \d+ of 9, (\w+): .*)");
  std::map<std::string, Lines> screens;
  Lines* screen = nullptr;
  for (const std::string& line : lines_of(out)) {
    std::smatch found;
    if (std::regex_match(line, found, heading)) screen = &screens[found[1]];
    if (screen == nullptr) {
      ADD_FAILURE() << "before the first heading: " << line;
    } else {
      screen->push_back(line);
    }
  }
  return screens;
}

// The groups of all lines that are of this kind.
std::vector<Words> rows_of(const Lines& lines, const std::string& kind) {
  const std::regex pattern(kind);
  std::vector<Words> rows;
  for (const std::string& line : lines) {
    std::smatch found;
    if (std::regex_match(line, found, pattern)) rows.emplace_back(found.begin() + 1, found.end());
  }
  return rows;
}

// As it reads, however it is wrapped.
std::string prose_of(const Lines& lines) {
  std::string prose;
  for (const std::string& line : lines) prose += line + ' ';
  return prose;
}

std::set<std::string> digests_in(const Lines& lines) {
  static const std::regex digest("[0-9a-f]{16}");
  std::set<std::string> digests;
  for (const std::string& line : lines) {
    for (std::sregex_iterator at(line.begin(), line.end(), digest); at != std::sregex_iterator(); ++at) {
      digests.insert(at->str());
    }
  }
  return digests;
}

const Words kShort{"tour", "--steps", "12"};

class Tour : public testing::TestWithParam<int> {
 protected:
  // Once for all that look at it.
  static const Lines& screen(const std::string& station) {
    static std::map<int, std::map<std::string, Lines>> taken;
    const int number = GetParam();
    if (!taken.contains(number)) {
      const ChildResult tour = run_trainer(number == 1 ? 0 : number, kShort);
      EXPECT_EQ(tour.status, 0) << tour.err;
      EXPECT_EQ(tour.err, "");
      taken[number] = screens_of(tour.out);
    }
    return taken.at(number)[station];
  }
  static std::size_t ranks() { return static_cast<std::size_t>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(On, Tour, testing::Values(1, 2, 3, 4),
                         [](const auto& tour) { return std::to_string(tour.param) + "Ranks"; });

TEST_P(Tour, ShowsEveryStationOnOneScreen) {
  for (const char* station :
       {"memory", "batch", "weights", "forward", "gradients", "sum", "step", "exchange", "training"}) {
    const Lines& lines = screen(station);
    EXPECT_GT(lines.size(), 6U) << station;
    EXPECT_LE(lines.size(), 24U) << station << ", with the empty line in whose place a prompt comes";
    for (const std::string& line : lines) EXPECT_LE(line.size(), 100U) << station << ": " << line;
  }
}

TEST_P(Tour, SaysOnlyWhatIsTrueOfOneRank) {
  if (ranks() > 1) return;
  for (const auto& [station, untrue] :
       std::vector<std::pair<std::string, std::string>>{{"memory", "each a process of its own"},
                                                        {"batch", "is split over the ranks"},
                                                        {"gradients", "differ from rank to rank"},
                                                        {"weights", "the replicas are the same"},
                                                        {"forward", "sends them off"},
                                                        {"forward", "until you have seen what each rank has"},
                                                        {"gradients", "every rank would take"},
                                                        {"sum", "every rank has the same sum"},
                                                        {"step", "Every rank now"},
                                                        {"step", "the replicas are still the same. "},
                                                        {"exchange", "may exceed its formula"}}) {
    EXPECT_THAT(prose_of(screen(station)), Not(HasSubstr(untrue))) << station;
    EXPECT_THAT(prose_of(screen(station)), Not(HasSubstr("1 rank, 1 digest"))) << station;
  }
  EXPECT_EQ(digests_in(screen("sum")), digests_in(screen("gradients")));
}

TEST_P(Tour, SaysWhatIsTrueOfMoreRanks) {
  if (ranks() == 1) return;
  EXPECT_THAT(prose_of(screen("forward")), HasSubstr("here all in one, which leaves when the first layer is done"));
  EXPECT_THAT(prose_of(screen("gradients")), HasSubstr("divided by the 128 images of the whole batch"));
  EXPECT_THAT(prose_of(screen("sum")), HasSubstr("divided by the 128 images of the whole batch"));
}

TEST_P(Tour, AddsUpTheMemoryOfAllRanks) {
  const std::string figures = R"( +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+))";
  const auto each = rows_of(screen("memory"), R"( +\d+ .*)" + figures);
  const auto all = rows_of(screen("memory"), " +all " + figures);
  ASSERT_EQ(each.size(), ranks());
  ASSERT_EQ(all.size(), 1U);
  for (std::size_t i = 0; i < all[0].size(); ++i) {
    double sum = 0;
    for (const Words& row : each) sum += std::stod(row[i]);
    EXPECT_NEAR(std::stod(all[0][i]), sum, 0.005 * static_cast<double>(ranks() + 1));
    EXPECT_GT(sum, 0);
  }
}

TEST_P(Tour, DealsEveryImageOfABatchToOneRank) {
  const auto rows = rows_of(screen("batch"), R"( +\d+  \d+ +(\d+) to (\d+) +(\d+)  [\d .]*)");
  ASSERT_EQ(rows.size(), ranks());
  int next = 0;
  for (const Words& row : rows) {
    EXPECT_EQ(std::stoi(row[0]), next);
    EXPECT_EQ(std::stoi(row[2]), std::stoi(row[1]) + 1 - next);
    next = std::stoi(row[1]) + 1;
  }
  EXPECT_EQ(next, 128);
  EXPECT_EQ(rows_of(screen("batch"), R"( +all .* (\d+)  128 different ones: .*)").at(0).at(0), "128");
}

TEST_P(Tour, ShowsEqualWeightsOnEveryRank) {
  EXPECT_EQ(digests_in(screen("weights")).size(), 1U);
  const Lines& lines = screen("weights");
  const auto names = std::ranges::find_if(lines, [](const std::string& line) { return line.starts_with("rank 0"); });
  ASSERT_NE(names, lines.end());
  const Words row = words_of(*(names + 1));
  ASSERT_EQ(row.size(), 3 * ranks());
  for (std::size_t i = 3; i < row.size(); ++i) EXPECT_EQ(row[i], row[i - 3]);
}

TEST_P(Tour, TellsOfALossThatIsTheMeanOfTheRanks) {
  const auto rows = rows_of(screen("forward"), R"( +(\d+|all) +(\d+) +([\d.]+) +(\d+) of \d+)");
  ASSERT_EQ(rows.size(), ranks() + 1);
  double loss = 0;
  int images = 0;
  int right = 0;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    loss += std::stod(rows[rank][2]) * std::stod(rows[rank][1]);
    images += std::stoi(rows[rank][1]);
    right += std::stoi(rows[rank][3]);
  }
  EXPECT_EQ(images, 128);
  EXPECT_EQ(rows.back()[1], "128");
  EXPECT_EQ(std::stoi(rows.back()[3]), right);
  EXPECT_NEAR(std::stod(rows.back()[2]), loss / images, 1e-4);
}

TEST_P(Tour, ShowsOtherGradientsOnEveryRank) { EXPECT_EQ(digests_in(screen("gradients")).size(), ranks()); }

TEST_P(Tour, ShowsASumThatAReaderCanAddUp) {
  const auto addends = rows_of(screen("sum"), R"(rank \d+ +(-?[\d.]+) +(-?[\d.]+) +(-?[\d.]+))");
  const auto by_hand = rows_of(screen("sum"), R"(added by hand +(-?[\d.]+) +(-?[\d.]+) +(-?[\d.]+))");
  const auto after = rows_of(screen("sum"), R"(rank \d+ +(-?[\d.]+) +(-?[\d.]+) +(-?[\d.]+) +([0-9a-f]{16}))");
  ASSERT_EQ(addends.size(), ranks());
  ASSERT_EQ(by_hand.size(), 1U);
  ASSERT_EQ(after.size(), ranks());
  for (std::size_t i = 0; i < 3; ++i) {
    double sum = 0;
    for (const Words& row : addends) sum += std::stod(row[i]);
    EXPECT_NEAR(std::stod(by_hand[0][i]), sum, 1e-9);
    EXPECT_NEAR(std::stod(after[0][i]), sum, 0.0006 * static_cast<double>(ranks() + 1));
  }
  for (const Words& row : after) EXPECT_EQ(row, after[0]);
}

TEST_P(Tour, StepsByTheLearningRateTimesTheSum) {
  const auto rows = rows_of(screen("step"), R"(\[.*\] +(\S+)   -  (\S+) +x +(\S+)   = +(\S+))");
  ASSERT_EQ(rows.size(), 3U);
  for (const Words& row : rows) {
    EXPECT_NEAR(std::stod(row[0]) - std::stod(row[1]) * std::stod(row[2]), std::stod(row[3]), 3e-8);
    EXPECT_NE(row[0], row[3]);
  }
  EXPECT_EQ(digests_in(screen("step")).size(), 1U);
}

// What training does with the same parts, seen in its own last line.
TEST_P(Tour, ShowsTheStepThatTrainingTakes) {
  const std::string parts = std::to_string(ranks());
  const ChildResult run = run_trainer(GetParam(), {"--parts", parts, "--exchange", "ring", "--steps", "1"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(digests_in(screen("step")), std::set{last_word(run.err, ", weights ")});
}

TEST_P(Tour, CountsTheBytesOfEachExchange) {
  const auto rows = rows_of(screen("exchange"), R"((\w+) .*\D([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) [a-z0-9 ]*)");
  ASSERT_EQ(rows.size(), 4U);
  const auto p = static_cast<double>(ranks());
  const std::map<std::string, double> expected{
      {"central", 4 * (p - 1)}, {"sharded", 8 * (p - 1) / p}, {"ring", 8 * (p - 1) / p}, {"exact", 12 * (p - 1) / p}};
  for (const Words& row : rows) {
    EXPECT_NEAR(std::stod(row[2]), expected.at(row[0]), 0.3) << row[0];
    EXPECT_GT(std::stod(row[3]), 0);
  }
}

TEST_P(Tour, GivesTheFormulasForItsOwnRanksToo) {
  const Lines& lines = screen("exchange");
  const auto header =
      std::ranges::find_if(lines, [](const std::string& line) { return line.starts_with("B/par. by"); });
  ASSERT_NE(header, lines.end());
  const std::string own = "P = " + std::to_string(ranks());
  const std::size_t end = (*header + ' ').find(own + ' ');
  ASSERT_NE(end, std::string::npos) << *header;
  const auto p = static_cast<double>(ranks());
  const std::vector<double> expected{4 * (p - 1), 8 * (p - 1) / p, 8 * (p - 1) / p, 12 * (p - 1) / p};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::string row = *(header + 1 + static_cast<std::ptrdiff_t>(i));
    EXPECT_NEAR(std::stod(row.substr(end - 4, own.size() + 4)), expected[i], 0.005) << row;
  }
}

TEST_P(Tour, TrainsToTheBitsOfOneRank) {
  const auto rows =
      rows_of(screen("training"), R"((\d+) ranks? +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +[\d.]+ +\d+   ([0-9a-f]{16}))");
  ASSERT_EQ(rows.size(), ranks() == 1 ? 1U : 2U);
  EXPECT_EQ(rows[0][0], std::to_string(ranks()));
  EXPECT_EQ(rows[0][1], "12");
  EXPECT_EQ(rows.back()[0], "1");
  EXPECT_TRUE(std::equal(rows[0].begin() + 1, rows[0].end(), rows.back().begin() + 1)) << "all but the ranks";
  const ChildResult run = run_trainer({"--parts", rows[0][0], "--exchange", "exact", "--steps", "12"});
  EXPECT_EQ(last_word(run.err, ", weights "), rows[0][5]);
  EXPECT_EQ(last_word(run.out, "test acc "), rows[0][4]);
}

TEST(TourOnManyRanks, KeepsToItsScreens) {
  const ChildResult tour =
      run_trainer(11, {"tour", "--data", "synthetic:300x3x12x12:4", "--model", "mlp", "--parts", "16", "--steps", "3"});
  ASSERT_EQ(tour.status, 0) << tour.err;
  const auto screens = screens_of(tour.out);
  EXPECT_EQ(screens.size(), 9U);
  for (const auto& [station, lines] : screens) {
    EXPECT_LE(lines.size(), 24U) << station;
    for (const std::string& line : lines) EXPECT_LE(line.size(), 100U) << line;
  }
  EXPECT_THAT(tour.out, HasSubstr("ranks 2 to 9"));
}

TEST(TourOfOtherNetworks, FollowsTheirFirstWeights) {
  for (const auto& [model, words] : std::map<std::string, std::string>{{"mlp", "dense1/weight, unit 0, amid the image"},
                                                                       {"resnet18", "stem.conv/weight, filter 0"}}) {
    const ChildResult tour = run_trainer(
        2, {"tour", "--model", model, "--data", "synthetic:64x3x16x16:4", "--batch-size", "16", "--steps", "2"});
    ASSERT_EQ(tour.status, 0) << tour.err;
    const auto screens = screens_of(tour.out);
    EXPECT_EQ(screens.size(), 9U);
    EXPECT_EQ(digests_in(screens.at("gradients")).size(), 2U);
    EXPECT_EQ(digests_in(screens.at("training")).size(), 1U);
    EXPECT_THAT(tour.out, HasSubstr(words));
  }
}

TEST(TourTo, StopsAtAStationByNumberOrName) {
  const ChildResult by_number = run_trainer(2, {"tour", "--to", "3"});
  EXPECT_EQ(by_number.status, 0) << by_number.err;
  EXPECT_EQ(screens_of(by_number.out).size(), 3U);
  const ChildResult by_name = run_trainer(2, {"tour", "--to", "weights"});
  EXPECT_EQ(screens_of(by_name.out).at("weights"), screens_of(by_number.out).at("weights"));
  EXPECT_EQ(screens_of(by_name.out).size(), 3U);
}

TEST(TourTo, IsHelpedByAListOfStations) {
  const ChildResult list = run_trainer(2, {"tour", "--stations"});
  EXPECT_EQ(list.status, 0) << list.err;
  const auto rows = rows_of(lines_of(list.out), R"( (\d)  (\w+) +(\S.*))");
  ASSERT_EQ(rows.size(), 9U);
  EXPECT_EQ(rows[5][1], "sum");
  EXPECT_EQ(run_trainer({"tour", "--stations"}).out, list.out);
}

TEST(TourRefuses, WhatItDoesNotKnow) {
  struct Refusal {
    Words words;
    int status;
    std::string reason;
  };
  for (const Refusal& refusal :
       std::vector<Refusal>{{{"--to", "10"}, 64, "--to 10: there is no such station; give one of 1 to 9, or its name"},
                            {{"--to", "0"}, 64, "there is no such station"},
                            {{"--to", "nowhere"}, 64, "--to nowhere: there is no such station"},
                            {{"--exchange", "ring"}, 64, "--exchange"},
                            {{"--model", "lenat"}, 64, "no model is called 'lenat'"},
                            {{"--parts", "2"}, 64, "3 ranks cannot share 2 parts"},
                            {{"--data", "no-such-data"}, 74, "no-such-data"}}) {
    const ChildResult result = run_trainer(3, with({"tour"}, refusal.words));
    EXPECT_EQ(result.status, refusal.status) << result.err;
    EXPECT_EQ(count(result.err, "trainer: "), 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr(refusal.reason));
    EXPECT_EQ(result.out, "");
  }
}

TEST(TourNames, FilesThatThereAre) {
  const ChildResult tour = run_trainer(2, with(kShort, {"--model", "linear"}));
  const std::regex file(R"((src|include)/[\w/.]+\.[ch]pp)");
  int files = 0;
  for (std::sregex_iterator at(tour.out.begin(), tour.out.end(), file); at != std::sregex_iterator(); ++at, ++files) {
    EXPECT_TRUE(std::filesystem::exists(std::string(TUTTI_SOURCE_DIR) + "/" + at->str())) << at->str();
  }
  EXPECT_GE(files, 18);
}

}  // namespace
}  // namespace tutti::test
