// bench allreduce as users start it: all algorithms, all elements checked, and the choices.

#include "support/child_process.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <set>
#include <string>

namespace tutti {
namespace {

using test::ChildResult;
using test::count;
using test::read_text;
using test::run_trainer;
using Json = nlohmann::json;

TEST(BenchAllreduce, ChecksEveryAlgorithmAtEverySizeAndReportsTheChoice) {
  const ScratchFolder folder;
  const std::string json_path = folder.path() + "/a.json";
  const ChildResult bench = run_trainer(3, {"bench", "allreduce", "--device", "cpu", "--ranks", "2,3", "--min-bytes",
                                            "4", "--max-bytes", "70000", "--repeats", "2", "--json", json_path});
  ASSERT_EQ(bench.status, 0) << bench.err;
  const Json json = Json::parse(read_text(json_path));
  std::set<std::string> points;
  for (const Json& point : json.at("results")) {
    EXPECT_EQ(point.at("wrong"), 0) << point;
    EXPECT_EQ(point.at("hosts"), 1);
    EXPECT_GT(point.at("seconds_median").get<double>(), 0);
    points.insert(point.at("algorithm").get<std::string>() + point.at("ranks").dump() + " " + point.at("bytes").dump());
  }
  EXPECT_EQ(points.size(), 2U * 8U * 7U);
  for (const std::string way : {"ring", "direct", "window", "mpi", "blocking", "auto", "exact"}) {
    EXPECT_TRUE(points.contains(way + "3 16384")) << way;
  }
  EXPECT_TRUE(json.at("choices").back().at("up_to_bytes").is_null());
  EXPECT_EQ(count(bench.out, "ranks on 1 host: "), 2) << bench.out;
}

TEST(BenchAllreduce, LimitsTheTimeOfASizeAndKeepsTheResultsOfEachSize) {
  const ScratchFolder folder;
  const std::string json_path = folder.file("a.json");
  const ChildResult bench =
      run_trainer(2, {"bench", "allreduce", "--device", "cpu", "--ranks", "2", "--min-bytes", "4", "--max-bytes", "16",
                      "--repeats", "1000000000", "--max-seconds", "0.2", "--json", json_path});
  ASSERT_EQ(bench.status, 0) << bench.err;
  const Json json = Json::parse(read_text(json_path));
  EXPECT_EQ(json.at("results").size(), 2U * 7U);
  for (const Json& point : json.at("results")) {
    EXPECT_GE(point.at("rounds"), 1);
    EXPECT_LT(point.at("rounds"), 1000000000);
  }
  EXPECT_EQ(json.at("busy").size(), 1U);
}

TEST(BenchAllreduce, WritesItsResultsAfterEachSize) {
  const ScratchFolder folder;
  const std::string json_path = folder.file("a.json");
  test::ChildProcess bench(test::trainer_words(2, {"bench", "allreduce", "--device", "cpu", "--ranks", "2", "--repeats",
                                                   "1000000000", "--max-seconds", "2", "--json", json_path}),
                           folder.file("log"));
  while (!std::filesystem::exists(json_path) && !bench.wait(0.05)) continue;
  EXPECT_EQ(bench.wait(0), std::nullopt);
  const Json json = Json::parse(read_text(json_path));
  EXPECT_EQ(json.at("results").size() % 7, 0U) << json;
}

TEST(BenchAllreduce, RefusesSoloOnMultipleRanksWithOneMessage) {
  const ChildResult bench = run_trainer(2, {"bench", "allreduce", "--device", "cpu", "--comm", "solo"});
  EXPECT_EQ(bench.status, 64);
  EXPECT_EQ(count(bench.err, "--comm solo is for one rank"), 1) << bench.err;
}

}  // namespace
}  // namespace tutti
