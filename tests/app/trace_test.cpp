// The file of --trace has the phases of all ranks without gaps, also after a stop by a signal.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

using Json = nlohmann::json;

const Words kRun = words_of("--data synthetic:64x1x4x4:4 --model mlp --batch-size 16 --epochs 3 --threads 1");

std::vector<Json> stays_of(const Json& trace, int rank) {
  std::vector<Json> stays;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X" && event.at("pid") == rank) stays.push_back(event);
  }
  return stays;
}

TEST(Trace, HasThePhasesOfAllRanksWithoutGapsOnOneClock) {
  const ScratchFolder folder;
  const std::string path = folder.file("trace.json");
  const ChildResult run = run_trainer(3, with(kRun, {"--trace", path}));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(count(run.err, "--trace: steps 0 to 12 of all ranks in " + path), 1) << run.err;
  const Json trace = Json::parse(read_text(path));
  EXPECT_EQ(trace.at("otherData").at("clocks").size(), 3u);
  std::map<int, std::string> names;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name") names[event.at("pid")] = event.at("args").at("name");
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(names.at(rank).starts_with("rank " + std::to_string(rank) + " on "));
    double end = -1;
    std::map<std::string, int> phases;
    for (const Json& stay : stays_of(trace, rank)) {
      const double begin = stay.at("ts");
      EXPECT_GE(begin, 0);
      EXPECT_NEAR(begin, end < 0 ? begin : end, 0.002);
      end = begin + stay.at("dur").get<double>();
      ++phases[stay.at("name")];
      const int step = stay.at("args").at("step");
      EXPECT_EQ(stay.at("args").at("epoch"), step == 0 ? 1 : (step + 3) / 4);
    }
    EXPECT_EQ(phases["data"], 12);
    EXPECT_EQ(phases["evaluation"], 2 * 3);
    EXPECT_GE(phases["backward"], 12);
    EXPECT_EQ(phases["ending"], 1);
  }
}

TEST(Trace, IsWrittenByARunThatIsStopped) {
  const ScratchFolder folder;
  const std::string path = folder.file("trace.json");
  const Words stopped = words_of("--epochs 1000000 --time-limit 4 --quiet --out");
  EXPECT_THAT(run_trainer(2, with(with(kRun, stopped), {folder.file("out"), "--trace", path})), ends(75));
  EXPECT_GT(stays_of(Json::parse(read_text(path)), 1).size(), 10u);
}

TEST(Trace, IsRefusedBeforeTrainingWhereItCannotBeWritten) {
  const ChildResult run = run_trainer(2, with(kRun, {"--trace", "/proc/nowhere/trace.json"}));
  EXPECT_EQ(run.status, 73);
  EXPECT_EQ(count(run.err, "cannot save '/proc/nowhere/trace.json'"), 1) << run.err;
  EXPECT_EQ(count(run.out, "epoch"), 0);
}

}  // namespace
}  // namespace tutti::test
