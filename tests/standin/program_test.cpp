// The trainer program with the stand-in in place of CUDA.

#include "support/child_process.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace tutti::test {
namespace {

constexpr const char* kResnet = R"(
name = "small-resnet"
init = "kaiming"
layer = [
  {name = "stem.conv", type = "conv2d", channels = 8, kernel = 3, padding = 1},
  {name = "stem.norm", type = "batch-norm", relu = true},
  {name = "block.shortcut", type = "conv2d", channels = 16, kernel = 1, stride = 2},
  {name = "block.conv", type = "conv2d", channels = 16, kernel = 3, stride = 2, padding = 1, input = "stem.norm"},
  {name = "block.norm", type = "batch-norm", add = true, relu = true, residual = "block.shortcut"},
  {name = "pool", type = "global-average-pool"},
  {name = "head", type = "linear", units = "classes"},
]
)";

struct Launch {
  int ranks = 1;
  Words words;
};

ChildResult train(const Launch& launch, const Words& more) {
  const Words words = with(with({"--lr", "0.01", "--momentum", "0", "--batch-size", "16"}, launch.words), more);
  ChildResult result = launch.ranks == 1 ? run_trainer(words) : run_trainer(launch.ranks, words);
  EXPECT_EQ(result.status, 0) << result.err;
  return result;
}

double loss(const Launch& launch, const Words& more) {
  return std::stod(last_word(train(launch, with({"--epochs", "1"}, more)).out, "loss "));
}

// For every gradient exchange.
void expect_the_cpus_loss(const Launch& launch, const std::vector<Words>& on_gpus = {{}}) {
  const double expected = loss(launch, {"--device", "cpu"});
  for (const Words& words : on_gpus) EXPECT_NEAR(loss(launch, with({"--device", "cuda"}, words)), expected, 1e-3);
}

const Launch kLenet{1, {"--model", "lenet", "--data", "synthetic:88x1x16x16:4"}};

TEST(ProgramOnGpus, TrainsLenetAsOnTheCpu) { expect_the_cpus_loss(kLenet); }

TEST(ProgramOnGpus, TrainsInBf16NearlyAsInFp32) {
  EXPECT_NEAR(loss(kLenet, {"--device", "cuda", "--precision", "bf16"}), loss(kLenet, {"--device", "cpu"}), 1e-2);
}

std::string weights(const Launch& launch, const Words& more) {
  return last_word(train(launch, with({"--epochs", "2", "--device", "cuda"}, more)).err, "weights ");
}

TEST(ProgramOnGpus, GivesTheSameBitsHoweverStepsAreEnqueued) {
  const std::string expected = weights(kLenet, {});
  EXPECT_EQ(weights(kLenet, {"--in-flight", "0"}), expected);
  EXPECT_EQ(weights(kLenet, {"--in-flight", "2"}), expected);
  EXPECT_EQ(weights(kLenet, {"--record-steps", "off"}), expected);
}

TEST(ProgramOnGpus, ResumesRunsOfACpuAndViceVersa) {
  const ScratchFolder folder;
  const std::string out = folder.path() + "/run";
  train(kLenet, {"--epochs", "1", "--device", "cuda", "--momentum", "0.9", "--out", out});
  EXPECT_EQ(run_trainer({"--out", out, "--resume", "--epochs", "2", "--device", "cpu"}).status, 0);
  const ChildResult moved = run_trainer({"--out", out, "--resume", "--epochs", "3", "--device", "cuda"});
  EXPECT_NEAR(std::stod(last_word(moved.out, "loss ")),
              loss(kLenet, {"--epochs", "3", "--device", "cpu", "--momentum", "0.9"}), 1e-3);
}

TEST(ProgramOnGpus, TrainsAResnetOnAugmentedImagesAsOnTheCpu) {
  const ScratchFolder folder;
  const std::string model = folder.path() + "/resnet.toml";
  std::ofstream(model) << kResnet;
  expect_the_cpus_loss({1,
                        {"--model", model, "--data", "synthetic:88x3x10x10:4", "--augment", "crop-flip", "--normalize",
                         "auto", "--parts", "2", "--exchange", "ring"}});
}

TEST(ProgramOnGpus, ExchangesGradientsOfRanksThroughNcclAndThroughTheHost) {
  Launch launch = kLenet;
  launch.ranks = 3;
  launch.words.insert(launch.words.end(), {"--bucket-mib", "0.1"});
  expect_the_cpus_loss(launch, {{"--comm", "nccl"},
                                {"--comm", "mpi"},
                                {"--comm", "nccl", "--exchange", "sharded"},
                                {"--comm", "nccl", "--exchange", "central"}});
}

TEST(ProgramOnGpus, GivesTheSameBitsOfExactSumsOnAnyNumberOfRanks) {
  const ScratchFolder folder;
  const std::string model = folder.path() + "/resnet.toml";
  std::ofstream(model) << kResnet;
  for (Launch launch : {kLenet, Launch{1, {"--model", model, "--data", "synthetic:88x3x10x10:4"}}}) {
    launch.words.insert(launch.words.end(), {"--parts", "4", "--exchange", "exact", "--momentum", "0.9"});
    const std::string alone = weights(launch, {});
    launch.ranks = 3;
    EXPECT_EQ(weights(launch, {"--comm", "nccl", "--shard-optimizer", "--bucket-mib", "0.01"}), alone);
    launch.ranks = 2;
    EXPECT_EQ(weights(launch, {"--comm", "mpi"}), alone);
  }
}

TEST(ProgramOnGpus, FindsABitThatFlipsInADevicesMemory) {
  struct Flip {
    const char* exchange;
    const char* bit;
    const char* tensors;
  };
  constexpr Flip kFlips[] = {
      {"exact", "weights,tensor=dense1/weight,element=9,bit=21", "parameters/dense1/weight"},
      {"ring", "weights,tensor=dense1/weight,element=9,bit=30", "parameters/dense1/weight"},  // soon not finite
  };
  for (const auto& [exchange, bit, tensors] : kFlips) {
    Launch launch = kLenet;
    launch.ranks = 3;
    launch.words = with(launch.words, {"--momentum", "0.9", "--comm", "nccl", "--exchange", exchange,
                                       "--verify-replicas", "3", "--in-flight", "1", "--epochs", "2", "--device",
                                       "cuda", "--rehearse", std::string("flip:rank=2,step=4,of=") + bit});
    const ChildResult result = run_trainer(launch.ranks, with({"--lr", "0.01", "--batch-size", "16"}, launch.words));
    EXPECT_EQ(result.status, 87) << result.err;
    EXPECT_NE(result.err.find("equal after step 3 and differ "), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(std::string("in ") + tensors + ";"), std::string::npos) << result.err;
  }
}

// Only rank 1 has a GPU.
ChildResult train_on_mixed_ranks(const std::string& options) {
  return run_script(3,
                    "if [ $RANK = 1 ]; then device=cuda; else device=cpu; fi; exec \"$T\" --model lenet --data "
                    "synthetic:88x1x16x16:4 --lr 0.01 --batch-size 18 --epochs 2 --comm mpi --device $device " +
                        options);
}

TEST(ProgramOnGpus, HasReplicasEqualToThoseOfRanksWithoutAGpu) {
  struct Manner {
    const char* options;
    const char* flipped_rank;
  };
  for (const auto& [manner, rank] : {Manner{"--exchange ring --momentum 0.9", "1"},
                                     Manner{"--exchange exact --allow-mixed-processors --optimizer adamw", "2"}}) {
    const std::string options = std::string("--verify-replicas 1 ") + manner;
    const ChildResult plain = train_on_mixed_ranks(options);
    EXPECT_EQ(plain.status, 0) << plain.err;
    const ChildResult flipped = train_on_mixed_ranks(
        options + " --rehearse flip:step=4,of=weights,tensor=dense2/bias,element=1,bit=3,rank=" + rank);
    EXPECT_EQ(flipped.status, 87) << flipped.err;
    EXPECT_NE(flipped.err.find(std::string("differ after step 4: rank ") + rank + " on "), std::string::npos)
        << flipped.err;
    EXPECT_NE(flipped.err.find(" differs from all others in parameters/dense2/bias;"), std::string::npos)
        << flipped.err;
  }
}

TEST(ProgramOnGpus, ChecksWhetherEveryRankHasAGpuWithEnoughMemory) {
  const Words words = with({"check", "--device", "cuda"}, kLenet.words);
  EXPECT_EQ(run_trainer(2, words).status, 0);
  const ChildResult crowd = run_child(trainer_words(2, words), {{"TUTTI_STANDIN_DEVICES", "1"}});
  EXPECT_EQ(crowd.status, 1);
  EXPECT_NE(crowd.out.find("2 ranks on "), std::string::npos) << crowd.out;
  EXPECT_NE(crowd.out.find(" see the same 1 GPU: start as many ranks as GPUs"), std::string::npos) << crowd.out;
  const ChildResult small =
      run_child(trainer_words(0, with(words, {"--batch-size", "6000"})), {{"TUTTI_STANDIN_MEMORY", "32"}});
  EXPECT_EQ(small.status, 1);
  EXPECT_NE(small.out.find(" MiB are needed on the GPU, and 32 MiB are free: give a smaller"), std::string::npos)
      << small.out << small.err;
}

}  // namespace
}  // namespace tutti::test
