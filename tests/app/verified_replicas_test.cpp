// A bit that flips on one rank of a started program, with and without healing.

#include "support/child_process.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tutti::test {
namespace {

Words words(const std::string& out, const std::string& more) {
  return with(words_of("--data synthetic:300x1x12x12:4 --model mlp --batch-size 48 --epochs 2 --exchange exact "
                       "--checkpoint-every 4steps --keep-checkpoints 0 --digest-every 1 --verify-replicas 3 --out " +
                       out),
              words_of(more));
}
constexpr const char* kFlip = " --rehearse flip:rank=1,step=4,of=velocity,tensor=dense1/weight,element=7,bit=20";

void expect_in(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "no '" << words << "' in: " << text;
}

TEST(VerifiedReplicas, EndTheJobWithTheirStatusAndNothingSavedOfADivergedState) {
  const ScratchFolder folder;
  const ChildResult result = run_trainer(3, words(folder.path(), kFlip));
  EXPECT_EQ(result.status, 87) << result.err;
  const std::string why = "the replicas were equal after step 3 and differ after step 4: rank 1 on ";
  const std::string what = " differs from all others in optimizer/velocity/dense1/weight; go on with --resume";
  expect_in(result.err, why);
  expect_in(result.err, what);
  const std::string record = read_text(folder.path() + "/exit.json");
  expect_in(record, "\"status\":87");
  expect_in(record, why);
  expect_in(
      read_text(folder.path() + "/metrics.jsonl"),
      R"({"event":"divergence","step":4,"equal_after":3,"ranks":[1],"tensors":["optimizer/velocity/dense1/weight"],)"
      R"("heals":false})");
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/checkpoints/step-00000004.h5"));
}

TEST(VerifiedReplicas, HealToTheRunInWhichNothingHappened) {
  const ScratchFolder healed;
  const ScratchFolder whole;
  const ChildResult result = run_trainer(3, with(words(healed.path(), "--on-divergence heal"), words_of(kFlip)));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_in(result.err, "; all ranks go back to step 3 and play the steps again");
  const ChildResult plain = run_trainer(3, words(whole.path(), "--on-divergence heal"));
  EXPECT_EQ(plain.status, 0) << plain.err;
  for (const char* part : {"", "/checkpoints/step-00000004.h5"}) {
    const ChildResult compared = run_trainer({"diff", healed.path() + part, whole.path() + part});
    EXPECT_EQ(compared.status, 0) << compared.out << compared.err;
  }
}

// The scale of a norm lies near 1, where this bit makes it infinite or too large for what it multiplies.
TEST(VerifiedReplicas, CountNoStepThatWasLeftOutForABitThatHasBeenHealed) {
  const ScratchFolder folder;
  std::ofstream(folder.file("normed.toml")) << R"(name = "normed"
[[layer]]
name = "conv"
type = "conv2d"
channels = 4
kernel = 3
[[layer]]
name = "norm"
type = "batch-norm"
[[layer]]
name = "head"
type = "linear"
units = "classes"
)";
  const ChildResult result =
      run_trainer(3, with(words_of("--data synthetic:300x1x12x12:4 --batch-size 48 --steps 7 --on-nonfinite skip "
                                   "--verify-replicas 5 --on-divergence heal --rehearse "
                                   "flip:rank=1,step=2,of=weights,tensor=norm/scale,element=3,bit=30"),
                          {"--model", folder.file("normed.toml")}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(count(result.err, ": the step is left out"), 2) << result.err;
  expect_in(result.err, "; all ranks go back to step 0 and play the steps again");
  EXPECT_EQ(count(result.err, "left out (--on-nonfinite skip)"), 0) << result.err;
}

}  // namespace
}  // namespace tutti::test
