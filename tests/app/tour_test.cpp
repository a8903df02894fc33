// The tour as users start it: its output is parsed, and the values are checked.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/trainer_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The lines of each station, by its name.
std::map<std::string, Lines> stations_of(const std::string& out) {
  static const std::regex heading(R"(Station \d+ of 6, (\w+): .*)");
  std::map<std::string, Lines> stations;
  Lines* station = nullptr;
  for (const std::string& line : lines_of(out)) {
    std::smatch found;
    if (std::regex_match(line, found, heading)) station = &stations[found[1]];
    if (station == nullptr) {
      ADD_FAILURE() << "before the first heading: " << line;
    } else {
      station->push_back(line);
    }
  }
  return stations;
}

// The regex groups of all lines that match.
std::vector<Words> rows_of(const Lines& lines, const std::string& kind) {
  const std::regex pattern(kind);
  std::vector<Words> rows;
  for (const std::string& line : lines) {
    std::smatch found;
    if (std::regex_match(line, found, pattern)) rows.emplace_back(found.begin() + 1, found.end());
  }
  return rows;
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

constexpr const char* kRow = R"((rank \d+|by hand) +(-?[\d.]+) +(-?[\d.]+) +(-?[\d.]+)   .*)";

class Tour : public ::testing::TestWithParam<int> {
 protected:
  static std::map<std::string, Lines> stations() {
    static std::map<int, std::string> out;
    const auto [found, fresh] = out.try_emplace(GetParam());
    if (fresh) {
      const ChildResult tour = GetParam() == 1 ? run_trainer({"tour"}) : run_trainer(GetParam(), {"tour"});
      EXPECT_EQ(tour.status, 0) << tour.err;
      EXPECT_EQ(tour.err, "");
      found->second = tour.out;
    }
    return stations_of(found->second);
  }
  static std::size_t ranks() { return static_cast<std::size_t>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Tour, ::testing::Values(1, 3));

TEST_P(Tour, FitsAScreenWithoutControlCodes) {
  const auto all = stations();
  EXPECT_EQ(all.size(), 6U);
  for (const auto& [station, lines] : all) {
    EXPECT_LE(lines.size(), 24U) << station;
    for (const std::string& line : lines) {
      EXPECT_LE(line.size(), 100U) << line;
      EXPECT_EQ(line.find('\x1b'), std::string::npos) << line;
    }
  }
}

TEST_P(Tour, GivesEveryImageOfABatchToOnePart) {
  const auto rows = rows_of(stations()["batch"], R"( +\d+ +\d+  (\d+) to (\d+) +(\d+)  [\d .]*)");
  ASSERT_EQ(rows.size(), ranks());
  int next = 0;
  for (const Words& row : rows) {
    EXPECT_EQ(std::stoi(row[0]), next);
    EXPECT_EQ(std::stoi(row[2]), std::stoi(row[1]) + 1 - next);
    next = std::stoi(row[1]) + 1;
  }
  EXPECT_EQ(next, 128);
  EXPECT_THAT(stations()["batch"], testing::Contains(mentions("128 different images in total")));
}

TEST_P(Tour, PrintsALossThatIsTheMeanOfTheRanks) {
  const auto rows = rows_of(stations()["forward"], R"( +(\d+|all) +(\d+) +([\d.]+) +(\d+))");
  ASSERT_EQ(rows.size(), ranks() + 1);
  double loss = 0;
  int images = 0;
  int correct = 0;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    images += std::stoi(rows[rank][1]);
    loss += std::stod(rows[rank][2]) * std::stod(rows[rank][1]);
    correct += std::stoi(rows[rank][3]);
  }
  EXPECT_EQ(images, 128);
  EXPECT_EQ(rows.back()[1], "128");
  EXPECT_EQ(std::stoi(rows.back()[3]), correct);
  EXPECT_NEAR(std::stod(rows.back()[2]), loss / images, 1e-4);
}

TEST_P(Tour, ShowsWeightsThatAreEqualAndGradientsThatAreNot) {
  EXPECT_EQ(digests_in(stations()["weights"]).size(), 1U);
  EXPECT_EQ(digests_in(stations()["gradients"]).size(), ranks());
  EXPECT_EQ(digests_in(stations()["sum"]).size(), 1U);
}

TEST_P(Tour, ShowsASumThatAReaderCanAddUp) {
  const auto addends = rows_of(stations()["gradients"], kRow);
  const auto sums = rows_of(stations()["sum"], kRow);
  ASSERT_EQ(addends.size(), ranks());
  ASSERT_EQ(sums.size(), ranks() + 1);
  EXPECT_EQ(sums.back()[0], "by hand");
  for (std::size_t i = 1; i <= 3; ++i) {
    double by_hand = 0;
    for (const Words& row : addends) by_hand += std::stod(row[i]);
    for (const Words& row : sums) EXPECT_NEAR(std::stod(row[i]), by_hand, 1e-5) << row[0];
  }
}

TEST_P(Tour, StepsByTheLearningRateTimesTheSum) {
  const auto rows = rows_of(stations()["step"], R"( +\[.*\] +(\S+)   -  (\S+) +x +(\S+)   = +(\S+))");
  ASSERT_EQ(rows.size(), 3U);
  for (const Words& row : rows) {
    EXPECT_NEAR(std::stod(row[0]) - std::stod(row[1]) * std::stod(row[2]), std::stod(row[3]), 3e-8);
    EXPECT_NE(row[0], row[3]);
  }
}

// Compares the explicit step, the trainer's step in the tour, and the step of a training with the same parts.
TEST_P(Tour, TakesTheStepThatTrainingTakes) {
  const std::string parts = std::to_string(ranks());
  const ChildResult run = run_trainer(GetParam(), {"--parts", parts, "--exchange", "ring", "--steps", "1"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(digests_in(stations()["step"]), std::set{last_word(run.err, ", weights ")});
}

// More than one part per rank, more than one bucket, and running statistics.
TEST(TourOfOtherNetworks, TakesTheTrainersStep) {
  for (const Words& words : std::vector<Words>{{"--model", "resnet18", "--data", "synthetic:64x3x16x16:4"},
                                               {"--model", "mlp", "--data", "synthetic:64x3x12x12:4"}}) {
    const ChildResult tour = run_trainer(3, with({"tour", "--batch-size", "10", "--parts", "5"}, words));
    EXPECT_EQ(tour.status, 0) << tour.err;
    auto stations = stations_of(tour.out);
    EXPECT_EQ(digests_in(stations["gradients"]).size(), 3U);
    EXPECT_EQ(digests_in(stations["step"]).size(), 1U) << tour.out;
  }
}

TEST(TourOnManyRanks, FitsItsScreens) {
  const ChildResult tour =
      run_trainer(11, {"tour", "--data", "synthetic:300x3x12x12:4", "--model", "mlp", "--parts", "16"});
  ASSERT_EQ(tour.status, 0) << tour.err;
  for (const auto& [station, lines] : stations_of(tour.out)) {
    EXPECT_LE(lines.size(), 24U) << station;
    for (const std::string& line : lines) EXPECT_LE(line.size(), 100U) << line;
  }
  EXPECT_THAT(tour.out, mentions(".. ranks 7 to 9"));
}

TEST(TourTo, StopsAtAStationByNumberOrName) {
  const ChildResult by_number = run_trainer(2, {"tour", "--to", "2"});
  EXPECT_EQ(by_number.status, 0) << by_number.err;
  EXPECT_EQ(stations_of(by_number.out).size(), 2U);
  EXPECT_EQ(run_trainer(2, {"tour", "--to", "weights"}).out, by_number.out);
}

TEST(TourTo, ListsTheStations) {
  const ChildResult list = run_trainer(2, {"tour", "--stations"});
  EXPECT_EQ(list.status, 0) << list.err;
  const auto rows = rows_of(lines_of(list.out), R"( (\d)  (\w+) +(\S.*))");
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_EQ(rows[4][1], "sum");
}

TEST(TourRefuses, UnknownWords) {
  struct Refusal {
    Words words;
    int status;
    std::string reason;
  };
  for (const Refusal& refusal :
       std::vector<Refusal>{{{"--to", "nowhere"}, 64, "--to nowhere: unknown station; give one of 1 to 6"},
                            {{"--exchange", "ring"}, 64, "--exchange"},
                            {{"--model", "lenat"}, 64, "no model is called 'lenat'"},
                            {{"--parts", "2"}, 64, "3 ranks cannot share 2 parts"},
                            {{"--data", "no-such-data"}, 74, "no-such-data"}}) {
    const ChildResult result = run_trainer(3, with({"tour"}, refusal.words));
    EXPECT_EQ(result.status, refusal.status) << result.err;
    EXPECT_EQ(count(result.err, "trainer: "), 1) << result.err;
    EXPECT_THAT(result.err, mentions(refusal.reason));
    EXPECT_EQ(result.out, "");
  }
}

TEST(TourNames, FilesThatExist) {
  const ChildResult tour = run_trainer(2, {"tour", "--model", "linear"});
  const std::regex file(R"((src|include)/[\w/.]+\.[ch]pp)");
  int files = 0;
  for (std::sregex_iterator at(tour.out.begin(), tour.out.end(), file); at != std::sregex_iterator(); ++at, ++files) {
    EXPECT_TRUE(std::filesystem::exists(std::string(TUTTI_SOURCE_DIR) + "/" + at->str())) << at->str();
  }
  EXPECT_GE(files, 13);
}

// Runs a shell script, in which $T is the program and $M the launcher.
ChildResult in_shell(const std::string& line) {
  return run_child({"sh", "-c", line}, {{"T", std::getenv("TUTTI_TRAINER")}, {"M", std::getenv("TUTTI_MPIEXEC")}});
}

TEST(TourPause, WaitsForEnterAndEndsAtAQ) {
  for (const auto& [keys, stations] : std::map<std::string, int>{{R"(\n\n\n)", 4}, {R"(\nq\n)", 2}, {"", 4}}) {
    const ChildResult two = in_shell("printf '" + keys + "' | exec \"$M\" -n 2 \"$T\" tour --pause --to 4");
    EXPECT_EQ(two.status, 0) << two.err;
    EXPECT_EQ(two.err, "");
    EXPECT_EQ(count(two.out, " of 6, "), stations) << two.out;
  }
}

TEST(TourPause, DoesNotWaitWithoutATerminal) {
  const ChildResult alone =
      in_shell("f=$(mktemp -u); mkfifo $f; exec 3<>$f; rm $f; exec \"$T\" tour --pause --to 2 <&3");
  EXPECT_EQ(alone.status, 0) << alone.err;
  EXPECT_EQ(count(alone.out, "Enter"), 0) << alone.out;
}

}  // namespace
}  // namespace tutti::test
