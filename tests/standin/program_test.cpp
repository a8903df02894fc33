// The trainer program with the stand-in in place of CUDA.

#include "support/child_process.hpp"
#include "support/reports.hpp"
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

const std::string& weights_of_lenet() {
  static const std::string once = weights(kLenet, {});
  return once;
}

TEST(ProgramOnGpus, GivesTheSameBitsHoweverStepsAreEnqueued) {
  const std::string expected = weights_of_lenet();
  EXPECT_EQ(weights(kLenet, {"--in-flight", "0"}), expected);
  EXPECT_EQ(weights(kLenet, {"--in-flight", "2"}), expected);
  EXPECT_EQ(weights(kLenet, {"--record-steps", "off"}), expected);
}

TEST(ProgramOnGpus, TrainsWithConvolutionsThatCannotBeCaptured) {
  const Words words = with(
      kLenet.words, {"--epochs", "2", "--device", "cuda", "--lr", "0.01", "--momentum", "0", "--batch-size", "16"});
  for (const auto& [engines, warnings] : {std::pair("1", 0), std::pair("2", 1)}) {
    const ChildResult result = run_child(trainer_words(0, words), {{"TUTTI_STANDIN_UNCAPTURABLE", engines}});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(count(result.err, "could not be recorded as a CUDA graph"), warnings) << result.err;
    EXPECT_EQ(count(result.err, "plan search: "), 1) << result.err;
    EXPECT_EQ(count(result.err, " candidates of 2 engines in "), 1) << result.err;
    EXPECT_EQ(last_word(result.err, "weights "), weights_of_lenet());
  }
  const ChildResult ranks = run_child(trainer_words(2, with(words, {"--comm", "nccl", "--bucket-mib", "0.1"})),
                                      {{"TUTTI_STANDIN_UNCAPTURABLE", "2"}});
  EXPECT_EQ(ranks.status, 0) << ranks.err;
  EXPECT_EQ(count(ranks.err, "could not be recorded as a CUDA graph"), 2) << "one per rank: " << ranks.err;
  EXPECT_EQ(count(ranks.err, "plan search: "), 1) << ranks.err;
}

// With three engines, of which one is wrong.
TEST(ProgramOnGpus, SearchesPlansOnceForAllStarts) {
  const ScratchFolder cache;
  const auto searches = [&](int ranks, const Words& more) {
    const Words words = with(kLenet.words, with({"--steps", "2", "--device", "cuda", "--batch-size", "16"}, more));
    const ChildResult result = run_child(
        trainer_words(ranks, words),
        {{"TUTTI_STANDIN_ENGINES", "3"}, {"TUTTI_STANDIN_INEXACT", "0.05 1"}, {"XDG_CACHE_HOME", cache.path()}});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(count(result.err, " dropped as inexact, "), count(result.err, "plan search: ")) << result.err;
    return count(result.err, "plan search: ");
  };
  EXPECT_EQ(searches(2, {}), 1);
  EXPECT_EQ(searches(2, {}), 0);
  EXPECT_EQ(searches(2, {"--plan-cache", "off"}), 1);
}

std::string precision_in(const std::string& folder) {
  const std::string text = read_text(folder + "/config.toml");
  const std::size_t begin = text.find("\nprecision = ") + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(ProgramOnGpus, ComputesInTf32UnlessAnotherPrecisionIsChosen) {
  const ScratchFolder folder;
  const auto run = [&](const std::string& name, const Words& words) {
    return train(kLenet, with({"--steps", "2", "--device", "cuda", "--out", folder.file(name)}, words));
  };
  EXPECT_EQ(count(run("auto", {}).err, ", precision tf32, "), 1);
  EXPECT_EQ(precision_in(folder.file("auto")), "precision = \"tf32\"");
  EXPECT_EQ(count(read_text(folder.file("auto/metrics.jsonl")), "\"precision\":\"tf32\""), 1);
  EXPECT_EQ(count(run("strict", {"--precision", "fp32"}).err, ", precision fp32, "), 1);
  EXPECT_EQ(count(train(kLenet, {"--steps", "2", "--device", "cpu"}).err, ", precision fp32, "), 1);
  // A run keeps its own, also an older one, which has fp32.
  for (const auto& [name, precision] : {std::pair("auto", "tf32"), std::pair("strict", "fp32")}) {
    const Words resume{"--out", folder.file(name), "--resume", "--steps", "4"};
    for (const Words& more : {Words{}, Words{"--precision", "auto"}, Words{"--precision", precision}}) {
      const ChildResult resumed = run_trainer(with(with(resume, {"--device", "cuda"}), more));
      EXPECT_EQ(resumed.status, 0) << resumed.err;
      EXPECT_EQ(count(resumed.err, std::string(", precision ") + precision + ", "), 1) << resumed.err;
    }
  }
}

TEST(ProgramOnGpus, ContinuesAndEvaluatesARunInTf32OnCpusInFp32) {
  const ScratchFolder folder;
  const std::string out = folder.file("run");
  train(kLenet, {"--steps", "2", "--device", "cuda", "--out", out});
  EXPECT_EQ(run_trainer({"eval", "--checkpoint", out, "--on", "train", "--device", "cpu"}).status, 0);
  const Words resume{"--out", out, "--resume", "--steps", "4", "--device", "cpu"};
  EXPECT_EQ(run_trainer(with(resume, {"--precision", "tf32"})).status, 64);
  const ChildResult moved = run_trainer(resume);
  EXPECT_EQ(moved.status, 0) << moved.err;
  EXPECT_EQ(count(moved.err, ", precision fp32, "), 1) << moved.err;
  EXPECT_EQ(precision_in(out), "precision = \"fp32\"");
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
                                {"--comm", "nccl", "--wire", "bf16"},
                                {"--comm", "mpi", "--wire", "bf16"},
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
    EXPECT_THAT(run_trainer(launch.ranks, with({"--lr", "0.01", "--batch-size", "16"}, launch.words)),
                ends(87, "equal after step 3 and differ ", std::string("in ") + tensors + ";"));
  }
}

TEST(ProgramOnGpus, AuditsPartsWithoutAChangeOfBits) {
  Launch launch = kLenet;
  launch.ranks = 2;
  launch.words = with(launch.words, {"--parts", "5", "--comm", "nccl"});
  EXPECT_EQ(weights(launch, {"--audit-every", "1"}), weights(launch, {}));
}

TEST(ProgramOnGpus, NamesTheGpuThatComputesAWrongResult) {
  EXPECT_THAT(
      run_trainer(
          3, with(kLenet.words,
                  words_of("--batch-size 16 --lr 0.01 --epochs 3 --parts 3 --comm nccl --device cuda --audit-every 1 "
                           "--rehearse wrong:rank=2,steps=5-18,layer=conv2,pass=forward,kind=stuck,element=9"))),
      ends(87, " multiprocessors), GPU 2) computed part ", ", first in the forward pass of conv2;"));
}

constexpr const char* kTrainLenet =
    "exec \"$T\" --model lenet --data synthetic:88x1x16x16:4 --lr 0.01 --batch-size 16 --epochs 1 --device cuda ";

TEST(ProgramOnGpus, ScreensAllGpusOfAHostInOneProcess) {
  const ChildResult result =
      run_child(trainer_words(0, words_of("screen --device cuda --seconds 0 --rehearse "
                                          "wrong:rank=1,step=12,layer=block1.norm1,pass=backward,kind=bit,element=3")),
                {{"TUTTI_STANDIN_DEVICES", "2"}});
  EXPECT_EQ(result.status, 87) << result.out << result.err;
  EXPECT_EQ(count(result.out, " is wrong: "), 1) << result.out;
  EXPECT_THAT(result.out, mentions("GPU 1 (", "first different in the backward pass of block1.norm1 (residual, fp32)",
                                   "screened 0 cores and 2 GPUs of "));
}

TEST(ProgramOnGpus, HasRanksOnMigInstancesOfOneGpuCommunicateThroughTheHostOnly) {
  const auto train_on_instances = [](const std::string& options) {
    return run_script(2, std::string("export CUDA_VISIBLE_DEVICES=$RANK; ") + kTrainLenet + options,
                      {{"TUTTI_STANDIN_MIG", "2"}});
  };
  EXPECT_THAT(train_on_instances(""),
              ends(64,
                   "have MIG instances of one GPU (Stand-in for a GPU at 0000:a0:00.0), between which NCCL "
                   "does not work: start one rank per physical GPU, or choose --comm mpi"));
  EXPECT_THAT(train_on_instances("--comm mpi"), ends(0));
}

TEST(ProgramOnGpus, LoadsKernelsEarlyWhereRanksWaitForEachOtherUnlessTheUserDecidesOtherwise) {
  EXPECT_THAT(run_script(2, kTrainLenet, {{"TUTTI_STANDIN_EAGER", "1"}}), ends(0));
  EXPECT_THAT(run_script(2, kTrainLenet, {{"TUTTI_STANDIN_EAGER", "1"}, {"CUDA_MODULE_LOADING", "LAZY"}}).err,
              mentions("a kernel that loads at its first launch may wait"));
}

TEST(ProgramOnGpus, RefusesAnOldGpuByName) {
  EXPECT_THAT(run_child(trainer_words(0, with(kLenet.words, {"--device", "cuda"})), {{"TUTTI_STANDIN_MAJOR", "7"}}),
              ends(64,
                   " has no GPU: Stand-in for a GPU (GPU 0) has compute capability 7.0, and 8.0 (A100) or "
                   "newer is needed; hide it by CUDA_VISIBLE_DEVICES if there are others"));
}

TEST(ProgramOnGpus, NamesWhatNcclUsesBetweenGpus) {
  const ScratchFolder folder;
  const std::string out = folder.file("run");
  const Words words =
      trainer_words(2, with(kLenet.words, {"--device", "cuda", "--batch-size", "16", "--steps", "1", "--out", out}));
  const ChildResult result = run_child(words, {{"TUTTI_NCCL_TRANSPORT", "PHB Socket"}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(count(result.err, "(NCCL "), 1) << result.err;
  EXPECT_EQ(count(result.err, " over PCIe (PHB)), optimizer state"), 1) << result.err;
  EXPECT_EQ(count(result.err, "by sockets"), 0) << "on one host: " << result.err;
  EXPECT_EQ(count(read_text(out + "/metrics.jsonl"), " over PCIe (PHB)\""), 1);
  const ChildResult elsewhere =
      run_child(trainer_words(2, with(kLenet.words, {"--device", "cuda", "--steps", "1"})), {{"NCCL_DEBUG", "WARN"}});
  EXPECT_EQ(elsewhere.status, 0) << elsewhere.err;
  EXPECT_EQ(count(elsewhere.err, " over "), 0) << elsewhere.err;
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
    EXPECT_EQ(count(plain.err, ", precision fp32, "), 1) << plain.err;
    EXPECT_THAT(train_on_mixed_ranks(
                    options + " --rehearse flip:step=4,of=weights,tensor=dense2/bias,element=1,bit=3,rank=" + rank),
                ends(87, std::string("differ after step 4: rank ") + rank + " on ",
                     " differs from all others in parameters/dense2/bias;"));
  }
}

TEST(ProgramOnGpus, IsAuditedByRanksOfItsKindOnly) {
  const ChildResult result = train_on_mixed_ranks("--exchange exact --allow-mixed-processors --audit-every 1");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(count(result.err, "no other rank has the processor of rank 1, which therefore audits itself"), 1)
      << result.err;
}

TEST(ProgramOnGpus, ChecksWhetherEveryRankHasAGpuWithEnoughMemory) {
  const Words words = with({"check", "--device", "cuda"}, kLenet.words);
  EXPECT_EQ(run_trainer(2, words).status, 0);
  EXPECT_THAT(run_child(trainer_words(2, words), {{"TUTTI_NCCL_FAULT", "windowless 1 -1"}}),
              ends(0, "so collectives copy it: rank 1 on "));
  const ChildResult crowd = run_child(trainer_words(2, words), {{"TUTTI_STANDIN_DEVICES", "1"}});
  EXPECT_THAT(crowd, ends(1));
  EXPECT_THAT(crowd.out, mentions("2 ranks on ", " see the same 1 GPU: start as many ranks as GPUs"));
  const ChildResult small =
      run_child(trainer_words(0, with(words, {"--batch-size", "6000"})), {{"TUTTI_STANDIN_MEMORY", "32"}});
  EXPECT_EQ(small.status, 1);
  EXPECT_NE(small.out.find(" MiB are needed on the GPU, and 32 MiB are free: give a smaller"), std::string::npos)
      << small.out << small.err;
}

TEST(ProgramOnGpus, DoesNotFallBackToCpusOnABrokenNode) {
  const Words words = trainer_words(0, with(kLenet.words, {"--batch-size", "16", "--steps", "1"}));
  const std::string none = "100";  // cudaErrorNoDevice
  EXPECT_THAT(
      run_child(words, {{"CUDA_VISIBLE_DEVICES", "0"}, {"TUTTI_STANDIN_START_ERROR", "802"}}),
      ends(64, "cudaErrorSystemNotReady", "drain ", "though its driver or launcher announces GPUs", "--device cpu"));
  EXPECT_THAT(run_child(words, {{"CUDA_VISIBLE_DEVICES", "0"}, {"TUTTI_STANDIN_START_ERROR", none}}),
              ends(64, "--device auto does not fall back to CPUs then: see nvidia-smi and dmesg on "));
  EXPECT_THAT(run_child(words, {{"TUTTI_STANDIN_START_ERROR", none}}), ends(0, "; cpu: "));
}

TEST(ProgramOnGpus, WarnsOfRanksThatSeeOnlyTheirOwnGpu) {
  const Words words = with(kLenet.words, {"--batch-size", "16", "--steps", "2", "--device", "cuda"});
  std::string options;
  for (const std::string& word : words) options += " " + word;
  const std::string hidden = "each see only their own GPU";
  const ChildResult apart = run_script(2, "CUDA_VISIBLE_DEVICES=$RANK exec \"$T\"" + options);
  EXPECT_THAT(apart, ends(0, "warning: on ", hidden));
  EXPECT_EQ(count(apart.err, hidden), 1) << apart.err;
  const ChildResult together = run_script(2, "CUDA_VISIBLE_DEVICES=0,1 exec \"$T\"" + options);
  EXPECT_THAT(together, ends(0, "NCCL"));
  EXPECT_EQ(count(together.err, hidden), 0) << together.err;
  EXPECT_EQ(last_word(apart.err, "weights "), last_word(together.err, "weights "));
}

TEST(ProgramOnGpus, NamesTheHostToDrainAfterAHardwareError) {
  const Words words = trainer_words(2, with(kLenet.words, {"--batch-size", "16", "--device", "cuda"}));
  const ChildResult result = run_child(words, {{"TUTTI_STANDIN_ERROR", "214 1 30"}});
  EXPECT_THAT(result, ends(70, "rank 1 on ", "cudaErrorECCUncorrectable", ": drain ", "dmesg | grep Xid"));
}

TEST(ProgramOnGpus, SaysWhatTakesTheMemoryOfAGpu) {
  const Words words = trainer_words(0, with(kLenet.words, {"--batch-size", "88", "--device", "cuda"}));
  const ChildResult result = run_child(words, {{"TUTTI_STANDIN_MEMORY", "4"}});
  EXPECT_THAT(result,
              ends(65, "GPU 0 on ", " has no room for ", "of its 4 MiB free: lower --batch-size",
                   " MiB of tensors there, ", " MiB of scratch and ", " MiB of data; a rank of this run needs about ",
                   " MiB for weights, gradients and optimizer state, ", " MiB for activations and "));
}

// The ranks wait for each other, in the same all-reduce or while NCCL connects them. On a busy machine, the watch may
// report instead that they wait for a core.
TEST(ProgramOnGpus, IsEndedByTheWatchBeforeNcclGivesUp) {
  const Words words = trainer_words(
      2, with(kLenet.words, {"--batch-size", "16", "--device", "cuda", "--epochs", "9", "--stall-timeout", "2"}));
  for (const char* const fault : {"stall 1 9", "stall -1 0"}) {
    const ChildResult result = run_child(words, {{"TUTTI_NCCL_FAULT", fault}});
    EXPECT_THAT(result, ends(86, "NCCL_SOCKET_IFNAME and NCCL_IB_HCA"));
    const bool is_explained = result.err.find("wait for each other in the same collective") != std::string::npos ||
                              result.err.find("are stuck: the first in ") != std::string::npos;
    EXPECT_TRUE(is_explained) << result.err;
    EXPECT_EQ(result.err.find("gave up after"), std::string::npos) << result.err;
  }
  // The host does not return from NCCL.
  EXPECT_THAT(run_child(words, {{"TUTTI_NCCL_FAULT", "block 1 9"}}), ends(86, ": rank 1 on ", " is stuck: "));
}

}  // namespace
}  // namespace tutti::test
