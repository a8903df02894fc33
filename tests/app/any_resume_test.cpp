// Resumes with other numbers of ranks, for all exchanges and with replicated and sharded optimizer state.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace tutti::test {
namespace {

struct Way {
  const char* name;
  Words words;
  bool any_ranks;  // gives the same bits on any number of them
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class AnyResume : public testing::TestWithParam<Way> {
 protected:
  std::string folder(const std::string& name) const { return folder_.file(name); }
  // A run has eight steps, and its epochs end between them.
  void start(int ranks, const std::string& out, const Words& more) const {
    const Words common = words_of(
        "--data synthetic:210x1x12x12:4 --model mlp --parts 4 --batch-size 48 --epochs 2 --steps 8 "
        "--last-batch rollover --lr 0.01 --momentum 0 --log-every 1 --quiet --out");
    expect_success(ranks, with(common, with({folder(out)}, with(GetParam().words, more))));
  }
  void resume(int ranks, const std::string& out, const Words& more) const {
    expect_success(ranks, with({"--resume", "--quiet", "--out", folder(out)}, more));
  }
  double loss(const std::string& out, int step) const {
    const std::string record = last_word(read_text(folder(out) + "/metrics.jsonl"),
                                         "{\"event\":\"step\",\"step\":" + std::to_string(step) + ",\"train_loss\":");
    return record.empty() ? -1 : std::stod(record);
  }
  void expect_success(int ranks, const Words& words) const { EXPECT_THAT(run_trainer(ranks, words), ends(0)); }

  ScratchFolder folder_;
};

TEST_P(AnyResume, OnThreeRanksAndOneEqualsAnUninterruptedRunOnFour) {
  start(4, "whole", {});
  start(4, "resumed", {"--steps", "3"});
  resume(3, "resumed", {"--steps", "6"});
  resume(1, "resumed", {"--steps", "8"});
  if (GetParam().any_ranks) {
    const std::string last = "/checkpoints/step-00000008.h5";
    EXPECT_THAT(run_trainer({"diff", folder("whole") + last, folder("resumed") + last}), ends(0));
  }
  for (int step = 4; step <= 8; ++step) EXPECT_NEAR(loss("resumed", step), loss("whole", step), 1e-5) << step;
}

// With momentum, a lost velocity would stay within the tolerance, since the learning rate is small.
INSTANTIATE_TEST_SUITE_P(
    Exchanges, AnyResume,
    testing::Values(Way{"ring", {"--exchange", "ring"}, false},
                    Way{"central", {"--exchange", "central", "--momentum", "0.9"}, false},
                    Way{"exactShardedLars", {"--optimizer", "lars", "--momentum", "0.9", "--shard-optimizer"}, true},
                    Way{"shardedAdamw", {"--exchange", "sharded", "--optimizer", "adamw", "--lr", "0.0001"}, false}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tutti::test
