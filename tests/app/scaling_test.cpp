// bench scaling as users start it: points, rounds, the breakdown of the time, and the inputs of the forecast.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace tutti {
namespace {

using test::ChildResult;
using test::count;
using test::read_text;
using test::run_trainer;
using test::Words;
using Json = nlohmann::json;

const Words kSmall{"bench",         "scaling", "--model",   "mlp", "--data",         "synthetic:512x1x8x8:4",
                   "--batch-size",  "16",      "--threads", "1",   "--warmup-steps", "1",
                   "--timed-steps", "4"};

Json json_of(const ScratchFolder& folder) { return Json::parse(read_text(folder.path() + "/s.json")); }

TEST(BenchScaling, ReportsTheSharesOfTimeOfEveryPoint) {
  const ScratchFolder folder;
  const ChildResult bench =
      run_trainer(3, test::with(kSmall, {"--exchanges", "ring,exact,sharded,central", "--ranks", "1,2", "--rounds", "3",
                                         "--json", folder.path() + "/s.json"}));
  ASSERT_EQ(bench.status, 0) << bench.err;
  const Json json = json_of(folder);
  std::set<std::string> points;
  for (const Json& point : json.at("results")) {
    points.insert(point.at("mode").get<std::string>() + point.at("exchange").get<std::string>() +
                  std::to_string(point.at("ranks").get<int>()));
    double sum = 0;
    for (const char* item : {"input", "compute", "imbalance", "exchange", "update"}) {
      EXPECT_GE(point.at("time").at(item).get<double>(), 0) << point;
      sum += point.at("time").at(item).get<double>();
    }
    EXPECT_GT(sum, 0);
    EXPECT_EQ(point.at("batch"), point.at("mode") == "weak" ? 16 * point.at("ranks").get<int>() : 16);
  }
  EXPECT_EQ(points.size(), 2U * 4U * 2U);
  EXPECT_EQ(json.at("rounds"), 3);
  EXPECT_EQ(json.at("hosts").size(), 1U);
  EXPECT_EQ(count(bench.out, "weak"), 8) << bench.out;
}

TEST(BenchScaling, WritesTheInputsOfAForecast) {
  const ScratchFolder folder;
  const std::string json_path = folder.path() + "/s.json";
  ASSERT_THAT(run_trainer(2, test::with(kSmall, {"--mode", "strong", "--json", json_path})), ends(0));
  Json content = json_of(folder);
  Json& inputs = content.at("forecast").at("inputs");
  std::vector<int> images;
  for (const Json& profile : inputs.at("compute")) images.push_back(profile.at("images").get<int>());
  EXPECT_EQ(images, (std::vector<int>{1, 4, 8, 16}));
  EXPECT_GE(inputs.at("within").at("sums_of_two").size(), 2U);
  EXPECT_TRUE(inputs.at("between").is_null());

  // On a busy machine, larger sums may not have taken longer.
  inputs["within"] = {{"latency", 1e-6}, {"bytes_per_second", 1e9}};
  std::ofstream(json_path) << content;
  const ChildResult forecast =
      run_trainer({"forecast", json_path, "--anyway", "--between", "20,0.1", "--ranks", "2..16", "--json", json_path});
  ASSERT_EQ(forecast.status, 0) << forecast.err;
  EXPECT_EQ(json_of(folder).at("forecast").at("compared").size(), json_of(folder).at("results").size());
  EXPECT_EQ(json_of(folder).at("forecast").at("points").size(), 4U);
}

TEST(BenchScaling, SendsGradientsAsTheExchangesCan) {
  for (const char* const wire : {"auto", "int64", "bf16"}) {
    const ScratchFolder folder;
    ASSERT_THAT(run_trainer(2, test::with(kSmall, {"--mode", "weak", "--exchanges", "ring,exact", "--wire", wire,
                                                   "--json", folder.path() + "/s.json"})),
                ends(0));
    EXPECT_EQ(json_of(folder).at("wire"), wire);
  }
}

TEST(BenchScaling, OfPacedStepsIsNeverOversubscribed) {
  const ScratchFolder folder;
  ASSERT_THAT(run_trainer(4, test::with(kSmall, {"--mode", "weak", "--paced", "--ranks", "4", "--json",
                                                 folder.path() + "/s.json"})),
              ends(0));
  const Json json = json_of(folder);
  EXPECT_EQ(json.at("paced"), true);
  EXPECT_EQ(json.at("results").at(0).at("oversubscribed"), false);
}

TEST(BenchScaling, RefusesWhatItCannotMeasureByTheOptionsName) {
  for (const auto& [option, value] :
       {std::pair{"--nodes", "2"}, std::pair{"--ranks", "4"}, std::pair{"--exchanges", "tree"}}) {
    const ChildResult bench = run_trainer(2, test::with(kSmall, {option, value}));
    EXPECT_NE(bench.status, 0) << option;
    EXPECT_THAT(bench.err, mentions(value));
  }
  EXPECT_THAT(run_trainer(2, test::with(kSmall, {"--between", "20,0.1", "--forecast", "2..8"})),
              ends(64, "'trainer forecast FILE --ranks N..M --between US,GBS'"));
}

}  // namespace
}  // namespace tutti
