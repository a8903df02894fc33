// A layer that computes wrong values in a running program: its audit ends it and names the host, and a resume without
// the fault ends with the bits of an uninterrupted run.

#include "tutti/base/process.hpp"

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutti::test {
namespace {

Words audited_words(const std::string& out, const std::string& more) {
  return with(words_of("--data synthetic:300x1x12x12:4 --model mlp --batch-size 48 --epochs 2 --parts 6 "
                       "--checkpoint-every 4steps --keep-checkpoints 0 --out " +
                       out),
              words_of(more));
}

TEST(AuditedParts, EndTheJobWithTheHostToExcludeAndResumeToTheBitsOfARunWithoutFaults) {
  const ScratchFolder wrong;
  const ScratchFolder whole;
  const ChildResult result =
      run_trainer(3, audited_words(wrong.path(),
                                   "--audit-every 1 --rehearse "
                                   "wrong:rank=1,steps=6-14,layer=dense1,pass=backward,kind=stuck,element=9"));
  EXPECT_EQ(result.status, 87) << result.err;
  const std::string what = "rank 1 on " + host_name() + " (cpu: ";
  EXPECT_THAT(result.err,
              mentions("the audit of step ", what, "wrong, unlike rank ",
                       ", first in the backward pass of dense1; the step was not applied, but checkpoints of "));
  const std::string record = read_text(wrong.path() + "/exit.json");
  EXPECT_THAT(record,
              mentions(R"({"status":87,"rank":1,"host":")" + host_name() + R"(","reason":"the audit of step )"));
  EXPECT_THAT(record, mentions(R"("exclude":[")" + host_name() + R"("],"right_at":)"));
  EXPECT_THAT(record, mentions(R"("phase":"backward","step":6})"));
  const std::string metrics = read_text(wrong.path() + "/metrics.jsonl");
  EXPECT_THAT(metrics, mentions(R"({"event":"audit","step":)"));
  EXPECT_THAT(metrics, mentions(R"("ranks":[1],"decided":true,"layer":"dense1","pass":"backward","repeats":true,)"));

  const ChildResult resumed = run_trainer(2, audited_words(wrong.path(), "--audit-every 3 --resume"));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  const ChildResult unbroken = run_trainer(3, audited_words(whole.path(), ""));
  EXPECT_EQ(unbroken.status, 0) << unbroken.err;
  EXPECT_EQ(last_word(resumed.err, "weights "), last_word(unbroken.err, "weights "));
}

TEST(AuditedParts, OfTwoRanksAreDecidedByWhatEachComputedAtItsStart) {
  const ScratchFolder folder;
  EXPECT_THAT(run_trainer(2, audited_words(folder.path(),
                                           "--audit-every 2 --rehearse "
                                           "wrong:rank=1,steps=3-14,layer=dense2,pass=forward,kind=stuck,element=2")),
              ends(87, "found that rank 1 on ", ", first in the forward pass of dense2; "));
}

TEST(AuditedParts, NeedAnExactExchangeAndOneRankIsToldWhatItCannotFind) {
  EXPECT_THAT(run_trainer(words_of("--audit-every 2 --exchange ring --steps 2")),
              ends(64, "--audit-every 2 compares what parts add to an exact sum, and this run has --exchange ring: "));
  EXPECT_THAT(run_trainer(words_of("--audit-every 1 --parts 2 --steps 3")),
              ends(0, "--audit-every: no other rank has the processor of rank 0, which therefore audits itself: "));
}

}  // namespace
}  // namespace tutti::test
