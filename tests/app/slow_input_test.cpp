// What the program says of images that take longer to prepare than to train on.

#include "data/written_images.hpp"
#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace tutti::test {
namespace {

using testing::Not;

class SlowInput : public testing::Test {
 protected:
  SlowInput() {
    // Each takes a thousand times as long as a step of the smallest network on 8x8 of its pixels.
    const auto large = testing_support::png_of(testing_support::gradient(3, 900, 900));
    for (int i = 0; i < 8; ++i) images_.write(fmt::format("{}/{}.png", i % 2, i), large);
  }
  ChildResult run(const std::string& words, int ranks = 1) const {
    const std::string options = " --batch-size 4 --threads 1 --data " + images_.path();
    return run_trainer(ranks, words_of(words + options));
  }

  const ScratchFolder images_;
};

TEST_F(SlowInput, IsForeseenByCheck) {
  const ChildResult result = run("check --model mlp --image-size 8", 2);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(count(result.out, "warning: a core prepares "), 1) << result.out;
  EXPECT_THAT(result.out,
              mentions(" cores per rank ", "and 1 is there", "give each rank more cores", "trainer data convert"));
}

TEST_F(SlowInput, IsNotMeasuredWhereNoCoreComputesSoFast) {
  const ChildResult result = run("check --model resnet50 --image-size 512");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, Not(mentions("a core prepares")));
}

TEST_F(SlowInput, IsReportedByARunAndByTheBench) {
  const ScratchFolder folder;
  const ChildResult trained = run("--model mlp --image-size 8 --epochs 2 --out " + folder.file("run"), 2);
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_EQ(count(trained.err, "a core prepares "), 3) << "each epoch, and the run: " << trained.err;
  const std::string metrics = read_text(folder.file("run/metrics.jsonl"));
  EXPECT_EQ(count(metrics, "\"rank_images_per_second\":"), 2) << metrics;
  const ChildResult bench =
      run("bench input --model mlp --image-size 8 --seconds 0.05 --json " + folder.file("bench.json"));
  EXPECT_EQ(bench.status, 0) << bench.err;
  EXPECT_THAT(bench.out, mentions("with 1 reader, the network waits "));
  const auto rates = nlohmann::json::parse(read_text(folder.file("bench.json")));
  EXPECT_GT(rates["rank_images_per_second"], rates["core_images_per_second"]);
}

}  // namespace
}  // namespace tutti::test
