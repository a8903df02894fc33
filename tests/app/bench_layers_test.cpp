// bench layers as users start it.

#include "support/child_process.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace tutti {
namespace {

using test::ChildResult;
using test::count;
using test::run_trainer;
using test::Words;
using Json = nlohmann::json;

const Words kBench = test::words_of(
    "bench layers --device cpu --model lenet --data synthetic:512x1x28x28:4 --batch-size 8 --threads 1 "
    "--warmup-steps 1 --timed-steps 3");

TEST(BenchLayers, TellsEveryLayerAndPartsThatAddUp) {
  const ScratchFolder folder;
  const std::string kept = folder.path() + "/layers.json";
  const ChildResult bench = run_trainer(test::with(kBench, {"--json", kept}));
  ASSERT_EQ(bench.status, 0) << bench.err;
  const Json json = Json::parse(test::read_text(kept));
  const auto seconds = [](const Json& of, const std::string& name) { return of.at(name + "_seconds").get<double>(); };
  std::vector<std::string> names;
  double sum = 0;
  for (const std::string part : {"data", "loss", "exchange", "update", "left"}) sum += seconds(json, part);
  for (const Json& layer : json.at("layers")) {
    names.push_back(layer.at("name").get<std::string>());
    EXPECT_EQ(count(bench.out, "\n" + names.back() + " "), 1) << bench.out;
    EXPECT_GT(seconds(layer, "forward"), 0) << layer;
    EXPECT_GT(seconds(layer, "backward"), 0) << layer;
    EXPECT_GT(seconds(layer.at("library"), "forward"), 0) << layer;
    sum += seconds(layer, "forward") + seconds(layer, "backward");
  }
  EXPECT_EQ(names, (std::vector<std::string>{"conv1", "pool1", "conv2", "pool2", "dense1", "dense2"}));
  EXPECT_NEAR(seconds(json, "parts"), sum, 1e-9);
  EXPECT_NEAR(json.at("library_ratio").get<double>() * seconds(json, "parts"), seconds(json, "library"), 1e-9);
}

TEST(BenchLayers, RefusesSeveralRanksOnce) {
  const ChildResult bench = run_trainer(2, kBench);
  EXPECT_EQ(bench.status, 64);
  EXPECT_EQ(count(bench.err, "one process, not at 2 ranks"), 1) << bench.err;
}

}  // namespace
}  // namespace tutti
