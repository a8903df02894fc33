// A bit flip on one rank of a running program, and the resume from a checkpoint before it.

#include "support/child_process.hpp"
#include "support/reports.hpp"
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

TEST(VerifiedReplicas, EndTheJobWithTheirStatusAndSaveNoDivergedState) {
  const ScratchFolder folder;
  const ChildResult result = run_trainer(3, words(folder.path(), kFlip));
  EXPECT_EQ(result.status, 87) << result.err;
  const std::string why = "the replicas were equal after step 3 and differ after step 4: rank 1 on ";
  const std::string what = " differs from all others in optimizer/velocity/dense1/weight; resume from the newest";
  EXPECT_THAT(result.err, mentions(why, what));
  const std::string record = read_text(folder.path() + "/exit.json");
  EXPECT_THAT(record, mentions("\"status\":87", why));
  EXPECT_THAT(read_text(folder.path() + "/metrics.jsonl"),
              mentions(R"({"event":"divergence","step":4,"equal_after":3,"ranks":[1],)"
                       R"("tensors":["optimizer/velocity/dense1/weight"],)"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/checkpoints/step-00000004.h5"));
}

TEST(VerifiedReplicas, ResumeToTheBitsOfARunWithoutFaults) {
  const ScratchFolder broken;
  const ScratchFolder whole;
  const std::string flip = " --rehearse flip:rank=1,step=7,of=velocity,tensor=dense1/weight,element=7,bit=20";
  EXPECT_EQ(run_trainer(3, words(broken.path(), flip)).status, 87);
  EXPECT_THAT(run_trainer(3, words(broken.path(), "--resume")), ends(0, "/checkpoints/step-00000004.h5"));
  EXPECT_EQ(run_trainer(3, words(whole.path(), "")).status, 0);
  for (const char* checkpoint : {"step-00000008.h5", "step-00000014.h5"}) {
    const std::string file = std::string("/checkpoints/") + checkpoint;
    EXPECT_THAT(run_trainer({"diff", broken.path() + file, whole.path() + file}), ends(0));
  }
}

// The scale of a norm is near 1, where this bit makes it infinite or too large for what it multiplies.
TEST(VerifiedReplicas, EndWithTheirStatusWhereTheBitMakesLossesInfinite) {
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
  for (const char* manner : {"stop", "skip"}) {
    EXPECT_THAT(
        run_trainer(
            3, with(words_of("--data synthetic:300x1x12x12:4 --batch-size 48 --steps 7 --verify-replicas 5 --rehearse "
                             "flip:rank=1,step=2,of=weights,tensor=norm/scale,element=3,bit=30"),
                    {"--model", folder.file("normed.toml"), "--on-nonfinite", manner})),
        ends(87, "rank 1 on ", "parameters/norm/scale"));
  }
}

TEST(VerifiedReplicas, AreNoLongerHealedAndTheOptionNamesTheRemedy) {
  const ScratchFolder folder;
  EXPECT_THAT(run_trainer(2, words(folder.path(), "--on-divergence heal")),
              ends(64, "--on-divergence heal no longer exists: leave it out."));
  EXPECT_EQ(run_trainer(2, words(folder.path(), "--on-divergence stop --steps 1")).status, 0);
}

}  // namespace
}  // namespace tutti::test
