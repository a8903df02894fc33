// The banner of a training, and the wait policy of its threads.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/trainer_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace tutti::test {
namespace {

using ::testing::Not;
using ::testing::StartsWith;

Words of_twenty_images(const Words& more) {
  return with({"--model", "linear", "--data", "synthetic:20x1x4x4:2", "--threads", "1"}, more);
}

TEST(Banner, CountsTheEpochsOfThePlannedSteps) {
  const ChildResult result = run_trainer(of_twenty_images({"--batch-size", "10", "--steps", "3"}));
  EXPECT_THAT(result.out, StartsWith("epoch 1/2, "));
  EXPECT_THAT(result.err, mentions("3 steps planned"));
  EXPECT_THAT(result.out, mentions("\nepoch 2/2, "));
  EXPECT_THAT(result.err, Not(mentions("--batch-size")));
}

TEST(Banner, NamesABatchThatIsNeverFull) {
  const ChildResult result = run_trainer(of_twenty_images({"--batch-size", "64", "--steps", "1"}));
  EXPECT_THAT(result.out, StartsWith("epoch 1/1, "));
  EXPECT_THAT(result.err, mentions("--batch-size 64 is more than 20 training images: every step trains on all",
                                   "1 step planned", "done after 1 step, "));
}

// GNU's OpenMP prints the settings that it has read.
TEST(Threads, SpinOnlyBrieflyUnlessTheEnvironmentSetsAWaitPolicy) {
  ::unsetenv("OMP_WAIT_POLICY");  // as tools/dev sets it
  const auto spins = [](const std::map<std::string, std::string>& given) {
    std::map<std::string, std::string> environment{{"OMP_DISPLAY_ENV", "verbose"}};
    environment.insert(given.begin(), given.end());
    return run_child(trainer_words(0, {"--version"}), environment).err;
  };
  const char* const brief = "GOMP_SPINCOUNT = '1000'";
  EXPECT_EQ(count(spins({}), brief), 1);
  EXPECT_EQ(count(spins({{"OMP_NUM_THREADS", "2"}}), brief), 1);
  EXPECT_EQ(count(spins({{"OMP_WAIT_POLICY", "active"}}), brief), 0);
  EXPECT_EQ(count(spins({{"OMP_WAIT_POLICY", "passive"}}), brief), 0);
  EXPECT_EQ(count(spins({{"GOMP_SPINCOUNT", "77"}}), "GOMP_SPINCOUNT = '77'"), 1);
}

TEST(Threads, AreThoseOfTheOptionWhateverOmpNumThreadsSays) {
  Words words = of_twenty_images({"--steps", "2"});
  words[words.size() - 3] = "2";  // --threads
  ChildResult first;
  for (const char* const given : {"1", "2", "7"}) {
    const ChildResult result = run_child(trainer_words(0, words), {{"OMP_NUM_THREADS", given}});
    EXPECT_THAT(result.err, mentions("2 threads per part\n"));
    if (first.err.empty()) first = result;
    EXPECT_EQ(last_word(result.err, "weights "), last_word(first.err, "weights "));
  }
}

TEST(Precision, OfGpusIsRefusedOnCpus) {
  EXPECT_THAT(run_child(trainer_words(0, of_twenty_images({"--precision", "tf32", "--device", "cpu"}))),
              ends(64, "--precision tf32 needs GPUs, and this run is on CPUs: give fp32 or bf16\n"));
}

TEST(InstructionSets, AreLimitedByTheEnvironment) {
  const auto run = [](const char* most) {
    return run_child(trainer_words(0, of_twenty_images({})), {{"TUTTI_MAX_CPU_ISA", most}});
  };
  EXPECT_THAT(run("SSE2").err, mentions("cpu: SSE2"));
  EXPECT_THAT(run("AVX1"),
              ends(64, "TUTTI_MAX_CPU_ISA is 'AVX1' in the environment: set it to SSE2, AVX2, AVX512 or "));
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel") && std::getenv("TUTTI_MAX_CPU_ISA") == nullptr) {
    EXPECT_THAT(run_child(trainer_words(0, of_twenty_images({}))).err, Not(mentions("with bf16")));
  }
#endif
}

}  // namespace
}  // namespace tutti::test
