// With fixed parts and the exact exchange, a run has the same result on any number of ranks.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

ChildResult train(int ranks, const Words& words, const Words& more) {
  ChildResult result = run_trainer(ranks, with(words, more));
  EXPECT_EQ(result.status, 0) << result.err;
  return result;
}

// The output of a run without its times, and the digest of its weights.
std::string account_of(const ChildResult& run) { return without_times(run.out) + last_word(run.err, ", weights "); }

TEST(AnyRanks, PrintTheSameLossesAccuraciesAndDigest) {
  const Words lenet{"--parts",        "8",     "--steps", "9",     "--batch-size", "100",
                    "--weight-decay", "0.001", "--data",  "glyphs"};
  const std::string alone = account_of(train(1, lenet, {}));
  EXPECT_EQ(count(alone, "test acc 0."), 1) << alone;
  for (const int ranks : {3, 8}) EXPECT_EQ(account_of(train(ranks, lenet, {})), alone) << ranks << " ranks";
}

// Rank 1 computes like an older processor.
TEST(AnyRanks, AndProcessorsOfAnyKindComputeTheSameBits) {
  const std::string run = "exec \"$T\" --data synthetic:96x1x12x12:4 --model mlp --epochs 1 --batch-size 48 --parts 2";
  const std::string like_old = "[ $RANK = 1 ] && export TUTTI_MAX_CPU_ISA=SSE2; ";
  const ChildResult mixed = run_script(2, like_old + run);
  EXPECT_EQ(mixed.status, 0) << mixed.err;
  EXPECT_EQ(count(mixed.err, "warning"), 0) << mixed.err;
  EXPECT_EQ(last_word(mixed.err, "weights "), last_word(run_script(2, run).err, "weights "));
}

TEST(AnyRanks, ResumeOnProcessorsOfAnyKindToTheSameBits) {
  const ScratchFolder folder;
  const std::string run = "exec \"$T\" --data synthetic:96x1x12x12:4 --model mlp --batch-size 48 --parts 2 ";
  const std::string stored = run + "--out " + folder.path();
  EXPECT_EQ(run_script(1, "TUTTI_MAX_CPU_ISA=SSE2 " + stored + " --epochs 1").status, 0);
  const ChildResult resumed = run_script(1, stored + " --resume --epochs 2");
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(count(resumed.err, "warning"), 0) << resumed.err;
  EXPECT_EQ(last_word(resumed.err, "weights "), last_word(run_script(1, run + "--epochs 2").err, "weights "));
}

Words small(const std::string& out, const Words& more = {}, const std::string& model = "mlp") {
  const Words words{"--data",       "synthetic:500x1x12x12:4",
                    "--model",      model,
                    "--parts",      "8",
                    "--epochs",     "2",
                    "--batch-size", "60",
                    "--last-batch", "rollover",
                    "--out",        out,
                    "--quiet"};
  return with(words, more);
}

TEST(AnyRanks, ResumeFromEachOthersCheckpointsToTheSameResult) {
  const ScratchFolder folder;
  const std::string whole = folder.path() + "/whole";
  const std::string broken = folder.path() + "/broken";
  train(1, small(whole), {"--digest-every", "1"});
  train(4, small(broken), {"--digest-every", "1", "--steps", "5"});
  train(3, {"--resume", "--out", broken, "--quiet"}, {"--steps", "11", "--shard-optimizer"});
  train(2, {"--resume", "--out", broken, "--quiet"}, {"--steps", "0"});
  const ChildResult runs = run_trainer(2, {"diff", whole, broken});
  EXPECT_EQ(runs.status, 0) << runs.out << runs.err;
  EXPECT_EQ(count(runs.out, "18 records compared, of steps 1 to 16\n"), 1) << runs.out;
  EXPECT_TRUE(runs.out.ends_with("\nequal\n")) << runs.out;
  const std::string last = "/checkpoints/step-00000016.h5";
  EXPECT_THAT(run_trainer({"diff", whole + last, broken + last}), ends(0));
}

TEST(AnyRanks, HaveTheSameResultWithBatchNormOverTheWholeBatchAlsoIfKilledAndResumed) {
  const ScratchFolder folder;
  const std::string model = folder.path() + "/normed.toml";
  std::ofstream(model) << R"(
name = "normed"
layer = [
  {name = "conv", type = "conv2d", channels = 8, kernel = 3, bias = false},
  {name = "norm", type = "batch-norm", relu = true},
  {name = "head", type = "linear", units = "classes"},
]
)";
  const std::string whole = folder.path() + "/whole";
  const std::string broken = folder.path() + "/broken";
  const Words global{"--batch-norm", "global", "--digest-every", "1"};
  train(1, small(whole, global, model), {});
  const Words killed =
      with(small(broken, global, model), {"--checkpoint-every", "3", "--rehearse", "kill:rank=2,step=8"});
  EXPECT_NE(run_trainer(4, killed).status, 0);
  const Words resume{"--resume", "--out", broken, "--quiet"};
  const ChildResult refused = run_trainer(3, with(resume, {"--batch-norm", "part"}));
  EXPECT_EQ(refused.status, 65);
  EXPECT_EQ(count(refused.err, "--batch-norm \"part\" contradicts the checkpoint"), 1) << refused.err;
  train(3, resume, {"--steps", "12"});
  train(2, resume, {"--steps", "0"});
  EXPECT_THAT(run_trainer(2, {"diff", whole, broken}), ends(0));
}

TEST(AnyRanks, HaveTheSameBitsWithTheOptionsOfARecipeAlsoAfterResumes) {
  const ScratchFolder folder;
  const std::string whole = folder.path() + "/whole";
  const std::string broken = folder.path() + "/broken";
  const std::string model = folder.path() + "/tiny.toml";
  std::ofstream(model) << R"(
name = "tiny"
layer = [
  {name = "stem", type = "conv2d", channels = 4, kernel = 3},
  {name = "norm", type = "batch-norm", relu = true},
  {name = "conv", type = "conv2d", channels = 4, kernel = 3},
  {name = "late", type = "batch-norm", relu = true},
  {name = "pool", type = "global-average-pool"},
  {name = "head", type = "linear", units = "classes"},
]
)";
  const auto recipe = [&](const std::string& out, const Words& more) {
    const Words words{"--data",          "synthetic:300x1x12x12:4",
                      "--model",         model,
                      "--parts",         "4",
                      "--epochs",        "4",
                      "--out",           out,
                      "--quiet",         "--nesterov",
                      "--weight-decay",  "0.01",
                      "--schedule",      "linear",
                      "--warmup-lr",     "0.01",
                      "--warmup-epochs", "1",
                      "--min-lr",        "0.005",
                      "--ema",           "0.9",
                      "--lookahead",     "3",
                      "--freeze",        "norm",
                      "--views",         "shifts",
                      "--batch-size",    "64",
                      "--lr-factors",    "late/shift=64,stem/bias@2=0",
                      "--decay-factors", "late/shift=0.015625",
                      "--digest-every",  "1",
                      "--patience",      "9"};
    return with(words, more);
  };
  train(1, recipe(whole, {}), {});
  train(4, recipe(broken, {"--steps", "7"}), {});
  train(2, {"--resume", "--out", broken, "--quiet"}, {"--steps", "0", "--shard-optimizer"});
  EXPECT_THAT(run_trainer({"diff", whole, broken}), ends(0));
  const std::string last = "/checkpoints/step-00000020.h5";
  EXPECT_THAT(run_trainer({"diff", whole + last, broken + last}), ends(0));
  EXPECT_EQ(count(read_text(broken + "/metrics.jsonl"), "\"averages\":\""), 20);
  const ChildResult other = run_trainer({"--resume", "--out", broken, "--ema", "0.8"});
  EXPECT_EQ(other.status, 65);
  EXPECT_EQ(count(other.err, "--ema 0.8"), 1) << other.err;
}

TEST(AnyRanks, HaveTheSameResultWithFrozenWhitenedAndDepthwiseLayersAlsoIfKilledAndResumed) {
  const ScratchFolder folder;
  const std::string model = folder.file("model.toml");
  std::ofstream(model) << R"(
name = "unusual"
init = "uniform"
layer = [
  {name = "whiten", type = "conv2d", channels = 8, kernel = 2, init = "whitening", frozen = ["weight"]},
  {name = "gelu", type = "gelu"},
  {name = "depth", type = "conv2d", channels = 8, kernel = 3, dilation = 2, groups = 8, bias = false, init = "dirac"},
  {name = "norm", type = "batch-norm", momentum = 0.4, epsilon = 1e-12, frozen = ["scale"]},
  {name = "silu", type = "silu"},
  {name = "ninth", type = "scale", factor = 0.1111111111111111},
  {name = "head", type = "linear", units = "classes", bias = false},
]
)";
  const std::string whole = folder.file("whole");
  const std::string broken = folder.file("broken");
  const Words more{"--weight-decay", "0.01", "--normalize", "auto", "--digest-every", "1", "--keep-checkpoints", "0"};
  train(1, small(whole, more, model), {"--checkpoint-every", "1"});
  const Words killed =
      with(small(broken, more, model), {"--checkpoint-every", "3", "--rehearse", "kill:rank=2,step=8"});
  EXPECT_NE(run_trainer(4, killed).status, 0);
  train(2, {"--resume", "--out", broken, "--quiet"}, {"--steps", "0"});
  EXPECT_THAT(run_trainer({"diff", whole, broken}), ends(0));
  const std::string of_step = whole + "/checkpoints/step-000000";
  const ChildResult steps = run_trainer({"diff", of_step + "01.h5", of_step + "16.h5"});
  EXPECT_EQ(steps.status, 1);
  EXPECT_EQ(count(steps.out, "/parameters: 4 of 6 tensors differ"), 1) << steps.out;  // all but the frozen ones
}

TEST(AnyRanks, FineTuneANewHeadOnFrozenLayersToTheSameResultAlsoIfResumed) {
  const ScratchFolder folder;
  const std::string first = folder.file("first");
  const std::string whole = folder.file("whole");
  const std::string broken = folder.file("broken");
  const std::string model = folder.file("model.toml");
  std::ofstream(model) << R"(
name = "trunk"
layer = [
  {name = "stem", type = "conv2d", channels = 8, kernel = 3},
  {name = "stem.norm", type = "batch-norm", relu = true},
  {name = "late", type = "conv2d", channels = 8, kernel = 3},
  {name = "late.norm", type = "batch-norm", relu = true},
  {name = "head", type = "linear", units = "classes"},
]
)";
  train(2, small(first, {}, model), {});
  const auto recipe = [&](const std::string& out, const Words& more) {
    const Words words = words_of(
        "--data synthetic:300x1x12x12:4 --new-head --freeze stem*,late* --lr-factors head=3 --weight-decay 0.01 "
        "--parts 4 --shard-optimizer --bucket-mib 0.0001 --epochs 2 --batch-size 64 --digest-every 1");
    return with(with(words, {"--init-from", first, "--out", out}), more);
  };
  const ChildResult alone = train(1, recipe(whole, {}), {});
  EXPECT_EQ(count(alone.err, "newly initialized: head/weight, head/bias\n"), 1) << alone.err;
  train(4, recipe(broken, {"--steps", "4"}), {});
  const std::string begun = folder.file("begun.h5");
  std::filesystem::rename(first + "/checkpoints/step-00000016.h5", begun);
  std::filesystem::remove_all(first);
  train(2, {"--resume", "--out", broken, "--quiet"}, {"--steps", "0"});
  EXPECT_THAT(run_trainer({"diff", whole, broken}), ends(0));
  const ChildResult tuned = run_trainer({"diff", begun, whole + "/checkpoints/step-00000010.h5"});
  EXPECT_EQ(count(tuned.out, "/parameters: 2 of 10 tensors differ"), 1) << tuned.out << tuned.err;
  EXPECT_EQ(count(tuned.out, "first head/bias:"), 1) << tuned.out;
  EXPECT_EQ(count(tuned.out, "/statistics"), 0) << tuned.out;
}

TEST(AnyRanks, DivergeWithoutTheExactExchangeAndDiffNamesTheStep) {
  const ScratchFolder folder;
  const auto run = [&](int ranks, const Words& more) {
    const std::string out = folder.path() + "/" + std::to_string(ranks);
    train(ranks, small(out, {"--exchange", "ring", "--checkpoint-every", "4", "--keep-checkpoints", "0"}), more);
    return out;
  };
  const std::string one = run(1, {"--digest-every", "1"});
  const std::string three = run(3, {});
  const ChildResult by_files = run_trainer({"diff", one, three});
  EXPECT_EQ(by_files.status, 1) << by_files.out << by_files.err;
  EXPECT_EQ(count(by_files.out, "the checkpoint of step 4 is the first to differ:\n"), 1) << by_files.out;
  EXPECT_EQ(count(by_files.out, "/parameters: "), 1) << by_files.out;
  const std::string two = run(2, {"--digest-every", "1"});
  const ChildResult by_digests = run_trainer(2, {"diff", one, two + "/metrics.jsonl"});
  EXPECT_EQ(by_digests.status, 1) << by_digests.out << by_digests.err;
  EXPECT_EQ(count(by_digests.out, "is the first to differ:\n  gradients "), 1) << by_digests.out;

  const std::string mixed = folder.path() + "/mixed";  // equal in what it recorded, not in its checkpoints
  std::filesystem::create_directories(mixed);
  std::filesystem::copy(three + "/checkpoints", mixed + "/checkpoints", std::filesystem::copy_options::recursive);
  std::filesystem::copy(one + "/metrics.jsonl", mixed + "/metrics.jsonl");
  EXPECT_EQ(run_trainer({"diff", one, mixed}).status, 1);

  const std::string checkpoint = one + "/checkpoints/step-00000004.h5";
  EXPECT_EQ(run_trainer({"diff", checkpoint, three}).status, 65);
  EXPECT_EQ(run_trainer({"diff", checkpoint, "no.h5"}).status, 66);
  EXPECT_EQ(run_trainer({"diff", one, "no-such-run"}).status, 74);
}

}  // namespace
}  // namespace tutti::test
