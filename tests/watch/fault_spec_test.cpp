#include "tutti/watch/fault_spec.hpp"

#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

RehearsedRun run_of(int ranks) {
  return {.ranks = ranks,
          .steps = {3, 40},
          .buckets = 4,
          .tensors = {{"weights", "conv1/weight", 500},
                      {"weights", "conv1/bias", 20},
                      {"statistics", "norm1/mean", 20},
                      {"gradients", "conv1/weight", 500},
                      {"gradients", "norm1/mean", 20},
                      {"velocity", "conv1/weight", 500}},
          .layers = {"conv1", "norm1", "head"}};
}

std::string planned(const std::string& text) {
  std::string texts;
  for (const Fault& fault : plan_faults(text, run_of(4))) {
    texts += (texts.empty() ? "" : "; ") + text_of(fault);
  }
  return texts;
}

TEST(FaultSpec, HappensAsItIsWritten) {
  EXPECT_EQ(planned("kill:rank=2,step=17,phase=backward"), "rank 2 is killed at step 17 in backward");
  EXPECT_EQ(planned("stop:rank=0,phase=starting"), "rank 0 is stopped in starting");
  EXPECT_EQ(planned("stop:rank=3,step=9,phase=evaluation"), "rank 3 is stopped in the first evaluation from step 9 on");
  EXPECT_EQ(planned(" delay: rank=1, step=5-9, phase=data, seconds=0.5 ;kill:rank=0,step=3,phase=update"),
            "rank 1 is delayed by 0.5 s at steps 5 to 9 in data; rank 0 is killed at step 3 in update");
  EXPECT_EQ(planned("delay:rank=1,step=5,phase=checkpoint,ms=20"),
            "rank 1 is delayed by 0.02 s in the first checkpoint from step 5 on");
  EXPECT_EQ(planned("flip:rank=1,step=8,tensor=conv1/weight,of=velocity,element=499,bit=31"),
            "rank 1 has bit 31 of element 499 of velocity conv1/weight flipped at the end of step 8");
  EXPECT_EQ(planned("flip:of=momentum,seed=1"), planned("flip:of=velocity,seed=1"));
  EXPECT_EQ(planned("flip:rank=1,step=8,tensor=norm1/mean,of=gradients,element=0,bit=0"),
            "rank 1 has bit 0 of element 0 of gradients norm1/mean flipped after the exchange of step 8");
  EXPECT_EQ(planned("drop-bucket:rank=0,step=40,bucket=3"), "rank 0 drops bucket 3 of step 40");
  EXPECT_EQ(planned("slow-link:rank=0,steps=4-6,mbps=100"), "rank 0 has a link of 100 Mbit/s in steps 4 to 6");
  EXPECT_EQ(planned("wrong:rank=2,step=30,layer=conv1,pass=backward,kind=bit,element=7,bit=5"),
            "rank 2 computes the backward pass of conv1 wrong once at step 30: bit 5 of value 7 is flipped");
  EXPECT_EQ(planned("wrong:rank=2,steps=30-40,layer=head,pass=forward,kind=stuck,element=0"),
            "rank 2 computes the forward pass of head wrong always at steps 30 to 40: its value 0 is stuck");
  EXPECT_EQ(planned("slow-link:rank=0,steps=4-6,ms=2.5"), "rank 0 has a link of 2.5 ms per collective in steps 4 to 6");
}

std::string refusal(const std::string& text) {
  try {
    plan_faults(text, run_of(4));
  } catch (const Error& error) {
    EXPECT_EQ(error.source(), ErrorSource::usage);
    return error.what();
  }
  return "none";
}

TEST(FaultSpec, IsRefusedWithTheWrongWordAndTheAllowedOnes) {
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(refusal(text).find(part), std::string::npos) << text << ": " << refusal(text);
  };
  expect("kil:rank=1", "--rehearse kil:rank=1: 'kil' is not a fault; choose one of kill, stop, delay, flip,");
  expect("kill:rank=1;", "none");
  expect(";", "'' is not a fault");
  expect("kill:bit=1", "'bit' is not one of seed, rank, step, phase");
  expect("kill:rank=one", "--rehearse rank=one: give 0 to");
  expect("kill:rank=-1", "--rehearse rank=-1: give 0 to");
  expect("kill:rank=4", "rank 4 does not exist: this job has rank 0 to 3");
  expect("kill:step=2", "step 2 is not in this run, which has steps 3 to 40");
  expect("delay:step=30-41", "step 41 is not in this run");
  expect("delay:step=9-5", "--rehearse step=9-5: give a step (17)");
  expect("kill:step=5-9", "happens once: give one step");
  expect("kill:phase=lunch", "--rehearse phase=lunch: phase is one of starting, data, forward");
  expect("kill:phase=starting,step=5", "starting comes before the first step");
  expect("delay:seconds=0", "--rehearse seconds=0: give a number above 0");
  expect("delay:seconds=nan", "give a number above 0");
  expect("slow-link:mbps=1,ms=1", "give ms or mbps");
  expect("flip:bit=32", "--rehearse bit=32: give 0 to 31");
  expect("flip:of=moment", "of 'moment' is not replicated on every rank: choose one of weights, statistics,");
  expect("flip:tensor=conv9", "tensor 'conv9' is not replicated on every rank: choose one of conv1/weight,");
  expect("flip:tensor=conv1/bias,of=velocity", "of 'velocity' is not replicated on every rank: choose one of weights");
  expect("flip:tensor=conv1/bias,element=20", "element 20 does not exist: conv1/bias has element 0 to 19");
  expect("drop-bucket:bucket=4", "bucket 4 does not exist: the exchange has bucket 0 to 3");
  expect("wrong:layer=conv9", "layer 'conv9' is not in the network: choose one of conv1, norm1, head");
  expect("wrong:pass=update", "--rehearse pass=update: pass is one of forward, backward");
  expect("wrong:kind=flip", "--rehearse kind=flip: kind is one of bit, scale, stuck");
  expect("seed=7,rank=2", "'rank' is not one of seed");
}

TEST(FaultSpec, FitsTheRunWhateverTheSeed) {
  std::set<FaultKind> kinds;
  std::set<Phase> phases;
  std::set<std::string> flipped;
  for (int ranks = 1; ranks <= 64; ++ranks) {
    const RehearsedRun run = run_of(ranks);
    for (int seed = 0; seed < 300; ++seed) {
      const Fault it = plan_faults("seed=" + std::to_string(seed), run).front();
      EXPECT_TRUE(it.rank >= 0 && it.rank < ranks);
      EXPECT_TRUE(it.first_step >= 3 && it.first_step <= it.last_step && it.last_step <= 40);
      EXPECT_TRUE(it.bucket >= 0 && it.bucket < 4);
      EXPECT_TRUE(it.flip.bit >= 0 && it.flip.bit < 32);
      EXPECT_EQ(it.seconds > 0, it.kind == FaultKind::delay);
      EXPECT_EQ(it.mbps > 0, it.kind == FaultKind::slow_link);
      const Fault wrong = plan_faults("wrong:seed=" + std::to_string(seed), run).front();
      EXPECT_TRUE(wrong.phase == Phase::forward || wrong.phase == Phase::backward);
      EXPECT_EQ(std::ranges::count(run.layers, wrong.wrong.layer), 1);
      if (it.kind == FaultKind::flip) {
        const auto tensor = std::ranges::find_if(
            run.tensors, [&](const FlipTarget& t) { return t.block == it.flip.block && t.name == it.flip.tensor; });
        ASSERT_NE(tensor, run.tensors.end());
        EXPECT_TRUE(it.flip.element >= 0 && it.flip.element < tensor->elements);
        flipped.insert(it.flip.block + it.flip.tensor);
      }
      kinds.insert(it.kind);
      phases.insert(it.phase);
    }
  }
  EXPECT_EQ(kinds.size(), 6u);
  EXPECT_EQ(phases.size(), 5u);
  EXPECT_EQ(flipped.size(), 6u);
}

TEST(FaultSpec, IsTheSameWithTheSameSeedAndNamingOneFieldChangesNoOther) {
  EXPECT_EQ(planned("stop:seed=7"), planned("stop:seed=7"));
  EXPECT_NE(planned("stop:seed=7"), planned("stop:seed=8"));
  const auto plan = [](const std::string& text) { return plan_faults(text, run_of(4)).front(); };
  const Fault drawn = plan("stop:seed=7");
  const Fault named = plan("stop:seed=7,rank=" + std::to_string(3 - drawn.rank));
  EXPECT_NE(named.rank, drawn.rank);
  EXPECT_EQ(named.first_step, drawn.first_step);
  EXPECT_EQ(named.phase, drawn.phase);
}

}  // namespace
}  // namespace tutti::test
