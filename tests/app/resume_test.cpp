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

Words run_words(const std::string& out, const Words& more) {
  const Words words = words_of(
      "--data synthetic:500x1x12x12:4 --model mlp --batch-size 64 --seed 7 --last-batch rollover --schedule step "
      "--lr-period 1 --class-weights 1,2,1,3 --normalize auto --augment "
      "shift:2,alternate-flip,vertical-flip,rotate:9,jitter:0.4/0.4/0.4/0.1,trivial,erase:0.5,mixup:0.2,cutmix:1");
  return with(with(words, {"--out", out}), more);
}

// The digest in the last epoch record.
std::string last_digest(const std::string& out) {
  return last_word(read_text(out + "/metrics.jsonl"), "\"digest\":\"");
}

TEST(Resume, AtTheSameRanksContinuesToTheSameDigest) {
  for (const int ranks : {1, 3}) {
    const ScratchFolder whole;
    const ScratchFolder broken;
    ASSERT_EQ(run_trainer(ranks, run_words(whole.path(), {"--epochs", "3"})).status, 0);
    // Once in the middle of an epoch, once at the end of one.
    for (const char* steps : {"5", "15"}) {
      ASSERT_THAT(run_trainer(ranks, run_words(broken.path(), {"--epochs", "3", "--steps", steps, "--resume"})),
                  ends(0));
    }
    ASSERT_THAT(run_trainer(ranks, {"--resume", "--out", broken.path(), "--steps", "0"}), ends(0));
    EXPECT_EQ(last_digest(broken.path()), last_digest(whole.path()));
  }
}

TEST(Resume, OfAnAdamwRunNeedsNoOptionsAndGivesTheSameDigest) {
  const ScratchFolder whole;
  const ScratchFolder broken;
  const Words adamw{
      "--optimizer",       "adamw", "--lr",         "0.01",  "--weight-decay", "0.1",     "--no-decay", "norms-biases",
      "--clip-norm",       "1",     "--epochs",     "2",     "--parts",        "3",       "--exchange", "ring",
      "--label-smoothing", "0.1",   "--adam-beta2", "0.99",  "--adam-epsilon", "1e-6",    "--schedule", "step",
      "--lr-period",       "1",     "--min-lr",     "0.005", "--shuffle",      "balanced"};
  ASSERT_EQ(run_trainer(2, run_words(whole.path(), adamw)).status, 0);
  ASSERT_EQ(run_trainer(2, run_words(broken.path(), with(adamw, {"--steps", "5"}))).status, 0);
  EXPECT_THAT(run_trainer(2, {"--resume", "--out", broken.path(), "--momentum", "0.5"}), ends(65));
  ASSERT_THAT(run_trainer(2, {"--resume", "--out", broken.path(), "--steps", "0"}), ends(0));
  EXPECT_EQ(last_digest(broken.path()), last_digest(whole.path()));
}

TEST(Resume, GoesOnToThePlannedEndWithoutTheOption) {
  const ScratchFolder whole;
  const ScratchFolder broken;
  const Words plan{"--epochs", "4", "--schedule", "cosine", "--checkpoint-every", "5", "--keep-checkpoints", "0"};
  ASSERT_EQ(run_trainer(2, run_words(whole.path(), plan)).status, 0);
  // Deleting its later checkpoints makes the run look interrupted.
  ASSERT_EQ(run_trainer(2, run_words(broken.path(), plan)).status, 0);
  for (const auto& file : std::filesystem::directory_iterator(broken.path() + "/checkpoints")) {
    if (file.path().stem() > "step-00000010") std::filesystem::remove(file.path());
  }
  const ChildResult rest = run_trainer(2, {"--resume", "--out", broken.path()});
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.err, mentions("(step 10 of 31)"));
  EXPECT_EQ(last_digest(broken.path()), last_digest(whole.path()));
  EXPECT_THAT(run_trainer(2, {"--resume", "--out", broken.path()}),
              ends(0, "nothing left to do: 31 steps done, 31 planned"));
}

TEST(Resume, OfACosineRunOnOtherRanksAndPartMapsGivesTheDigestOfAnUninterruptedRun) {
  const ScratchFolder whole;
  const ScratchFolder broken;
  const Words plan{"--epochs", "3", "--schedule", "cosine", "--warmup-epochs", "0.5", "--parts", "4"};
  ASSERT_EQ(run_trainer(run_words(whole.path(), plan)).status, 0);
  ASSERT_THAT(run_trainer(3, run_words(broken.path(), with(plan, {"--part-map", "2,1,1", "--steps", "5"}))), ends(0));
  const Words resumed{"--resume", "--out", broken.path(), "--steps"};
  const ChildResult second = run_trainer(2, with(resumed, {"13"}));
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(count(second.err, "the checkpoint's --part-map 2,1,1 is for 3 ranks, not 2: parts are assigned evenly now"),
            1)
      << second.err;
  EXPECT_EQ(count(second.err, "learning rate jumps"), 0) << second.err;
  EXPECT_THAT(run_trainer(5, with(resumed, {"0"})),
              ends(64,
                   "this run has 4, so it can use at most 4 ranks; start a new run with --parts N to resume on "
                   "up to N"));
  EXPECT_FALSE(std::filesystem::exists(broken.file("exit.json")));
  ASSERT_THAT(run_trainer(4, with(resumed, {"0", "--part-map", "1,1,1,1"})), ends(0));
  EXPECT_EQ(last_digest(broken.path()), last_digest(whole.path()));
}

TEST(Resume, OfACosineRunMadeLongerReportsTheJumpOfTheLearningRateAndNeverRecommendsARateOfZero) {
  const ScratchFolder planned;
  const ScratchFolder longer;
  const Words plan{"--schedule", "cosine", "--epochs", "2"};
  const auto run = [&](const std::string& out, const Words& more) {
    const ChildResult result = run_trainer(run_words(out, with(plan, more)));
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  const auto lengthen = [&](const std::string& out) {
    const ChildResult result = run_trainer({"--resume", "--out", out, "--epochs", "4"});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  run(longer.path(), {});
  const std::string jump = lengthen(longer.path());
  EXPECT_EQ(count(jump,
                  "warning: the cosine schedule ends at epoch 4 now, not at epoch 2, so the learning rate jumps "
                  "from "),
            1)
      << jump;
  EXPECT_EQ(count(jump, "; for another schedule, start a new run with --init-from "), 1) << jump;
  EXPECT_EQ(count(jump, "this invocation: time "), 1) << jump;
  EXPECT_EQ(count(jump, " before, 0.0"), 1) << jump;
  run(planned.path(), {"--schedule-epochs", "4"});
  const std::string smooth = lengthen(planned.path());
  EXPECT_EQ(count(smooth, "jumps"), 0) << smooth;
  const ChildResult still =
      run_trainer({"--resume", "--out", planned.path(), "--epochs", "5", "--schedule-epochs", "4"});
  EXPECT_EQ(still.status, 0) << still.err;
  EXPECT_EQ(count(still.err, "jumps"), 0) << still.err;
  EXPECT_EQ(count(still.err, "warning: the cosine schedule ends at epoch 4, and --epochs is 5: "), 1) << still.err;
}

TEST(Resume, OfALookaheadRunMadeLongerReportsTheJumpOfItsDecay) {
  const ScratchFolder folder;
  EXPECT_THAT(run_trainer(run_words(folder.path(), {"--epochs", "2", "--ema", "0.9", "--lookahead", "3"})), ends(0));
  const ChildResult longer = run_trainer({"--resume", "--out", folder.path(), "--epochs", "3"});
  EXPECT_EQ(count(longer.err,
                  "warning: the ramp of --lookahead ends at epoch 3 now, not at epoch 2, so the decay of the average "
                  "jumps; to avoid that, give --schedule-epochs 2"),
            1)
      << longer.err;
}

TEST(Resume, MidEpochReportsTheWholeEpochsSums) {
  const ScratchFolder whole;
  const ScratchFolder broken;
  const auto line_of_epoch = [](const ChildResult& result) {
    const std::size_t at = result.out.find("epoch 1/1, ");
    return result.out.substr(at, result.out.find(", time", at) - at);
  };
  const std::string unbroken = line_of_epoch(run_trainer(2, run_words(whole.path(), {"--epochs", "1"})));
  run_trainer(2, run_words(broken.path(), {"--epochs", "1", "--steps", "3"}));
  EXPECT_EQ(line_of_epoch(run_trainer(2, run_words(broken.path(), {"--epochs", "1", "--steps", "0", "--resume"}))),
            unbroken);
}

TEST(Resume, FindsACheckpointOfEachEpochByDefault) {
  const ScratchFolder each;
  const ScratchFolder last;
  const Words plan{"--epochs", "3", "--keep-checkpoints", "0"};
  const ChildResult run = run_trainer(2, run_words(each.path(), plan));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, mentions("/checkpoints: every epoch, and every 15 minutes within longer epochs; all kept"));
  ASSERT_EQ(run_trainer(2, run_words(last.path(), with(plan, {"--checkpoint-every", "end"}))).status, 0);
  const auto checkpoints = [](const ScratchFolder& folder) {
    return std::distance(std::filesystem::directory_iterator(folder.path() + "/checkpoints"), {}) / 2;
  };
  EXPECT_EQ(checkpoints(each), 3);
  EXPECT_EQ(checkpoints(last), 1);
  EXPECT_EQ(last_digest(each.path()), last_digest(last.path()));
}

TEST(Resume, MustBeRequestedInAFolderWithCheckpoints) {
  const ScratchFolder folder;
  ASSERT_EQ(run_trainer(run_words(folder.path(), {"--steps", "2"})).status, 0);
  EXPECT_THAT(run_trainer(run_words(folder.path(), {"--steps", "4"})), ends(65, "add --resume"));
}

TEST(Resume, RefusesWhatContradictsTheRunAndNamesBoth) {
  const ScratchFolder folder;
  ASSERT_EQ(run_trainer(run_words(folder.path(), {"--steps", "2"})).status, 0);
  struct Contradiction {
    std::string option, requested, of_run;
  };
  for (const auto& [option, requested, of_run] :
       {Contradiction{"--batch-size", "32", "64"}, Contradiction{"--parts", "3", "1"},
        Contradiction{"--model", "lenet", "\"mlp\""}, Contradiction{"--optimizer", "lars", "\"sgd\""},
        Contradiction{"--precision", "bf16", "\"fp32\""}, Contradiction{"--wire", "bf16", "\"fp32\""}}) {
    EXPECT_THAT(run_trainer({"--resume", "--out", folder.path(), option, requested}),
                ends(65, option + " ", " contradicts the checkpoint ", "step-00000002.h5, which has " + of_run));
  }
}

TEST(Resume, RefusesAModelFileThatHasChangedAndNamesTheFirstOtherLayer) {
  const ScratchFolder folder;
  const std::string file = folder.file("net.toml");
  const auto write = [&](const std::string& init, const std::string& hidden) {
    std::ofstream(file) << init << "name = \"net\"\n"
                        << hidden << "[[layer]]\nname = \"head\"\ntype = \"linear\"\nunits = \"classes\"\n";
  };
  const auto layer = [](const std::string& name, int units) {
    return "[[layer]]\nname = \"" + name + "\"\ntype = \"linear\"\nunits = " + std::to_string(units) + "\n";
  };
  const std::string out = folder.file("run");
  const auto resume = [&] { return run_trainer({"--resume", "--out", out, "--model", file, "--steps", "0"}); };
  write("", layer("hidden", 8));
  const Words words{"--data", "synthetic:500x1x12x12:4", "--model", file, "--steps", "2", "--out", out};
  ASSERT_EQ(run_trainer(words).status, 0);
  write("", layer("hidden", 16));
  EXPECT_THAT(resume(), ends(65, "--model " + file + " differs from the network of the checkpoint ",
                             " in layer 'hidden': leave the option out to continue with that network, or "));
  EXPECT_NE(run_trainer({"check", "--resume", "--out", out, "--model", file}).out.find("in layer 'hidden'"),
            std::string::npos);
  write("", "");
  EXPECT_NE(resume().err.find(" in layer 'head': "), std::string::npos);
  write("", layer("hidden", 8) + layer("more", 8));
  EXPECT_NE(resume().err.find(" in layer 'more': "), std::string::npos);
  write("init = \"kaiming\"\n", layer("hidden", 8));
  EXPECT_NE(resume().err.find(" in init: "), std::string::npos);
  write("# the same network\n", layer("hidden", 8));
  EXPECT_EQ(resume().status, 0);
  std::filesystem::remove(file);
  EXPECT_EQ(resume().status, 0) << "the network is in the checkpoint";
}

TEST(Resume, RefusesCheckpointsOfAnEarlierFormatByNameWithTheRemedy) {
  const ScratchFolder folder;
  std::filesystem::copy(std::string(TUTTI_GOLDEN_FOLDER) + "/format-1", folder.file("checkpoints"));
  EXPECT_THAT(run_trainer(2, {"--resume", "--out", folder.path()}),
              ends(65, "step-00000042",
                   "has format 1, this program reads 2 and 3: resume with the version of this program that wrote"));
  EXPECT_TRUE(std::filesystem::exists(folder.file("checkpoints/step-00000042.h5"))) << "still there for that version";
}

TEST(Resume, OfAnEmptyFolderStartsANewRunAndReportsIt) {
  const ScratchFolder folder;
  EXPECT_THAT(run_trainer(run_words(folder.path(), {"--steps", "2", "--resume"})), ends(0, "starting a new run"));
}

TEST(Resume, OfAMistypedFolderIsRefusedUnlessOptionsOfATrainingAreGiven) {
  const ScratchFolder folder;
  const std::string typo = folder.path() + "/rnus/a";
  for (const Words& words : {Words{"--resume", "--out", typo}, Words{"--resume", "--out", typo, "--steps", "0"},
                             Words{"check", "--resume", "--out", typo}}) {
    const ChildResult result = run_trainer(words);
    EXPECT_NE(result.status, 0);
    const std::string printed = result.out + result.err;
    EXPECT_THAT(printed, mentions("there is no run in '" + typo + "': check the path"));
    EXPECT_FALSE(std::filesystem::exists(typo));
  }
}

TEST(Resume, OfARunThatEndedBeforeItsFirstCheckpointKeepsItsOptions) {
  const ScratchFolder folder;
  const std::string config = folder.file("config.toml");
  const ChildResult first = run_trainer(2, run_words(folder.path(), {"--steps", "2"}));
  ASSERT_EQ(first.status, 0);
  const std::string options = read_text(config);
  std::filesystem::remove_all(folder.file("checkpoints"));
  const ChildResult again = run_trainer(2, {"--resume", "--out", folder.path()});
  EXPECT_THAT(again, ends(0, "starting afresh with the options in " + config));
  EXPECT_EQ(read_text(config), options);
  const auto digest = [](const ChildResult& run) { return run.err.substr(run.err.rfind(", weights ")); };
  EXPECT_EQ(digest(again), digest(first));
}

TEST(Resume, OfSuchARunWithWeightsOfAnotherNetworkKeepsItsNetwork) {
  const ScratchFolder folder;
  const auto trained = [&](const std::string& name, const std::string& layer, const Words& more) {
    const std::string model = folder.file(name + ".toml");
    std::ofstream(model) << "name = 'net'\nlayer = [" << layer
                         << "{name = 'head', type = 'linear', units = 'classes'}]";
    const Words words{"--data", "synthetic:60x1x8x8:4", "--steps", "2", "--model", model, "--out", folder.file(name)};
    ASSERT_THAT(run_trainer(with(words, more)), ends(0));
  };
  trained("weights", "", {});
  trained("run", "{name = 'drop', type = 'dropout', rate = 0.5},", {"--init-from", folder.file("weights")});
  const std::string options = read_text(folder.file("run/config.toml"));
  std::filesystem::remove_all(folder.file("run/checkpoints"));
  ASSERT_THAT(run_trainer({"--resume", "--out", folder.file("run")}), ends(0, "starting afresh"));
  EXPECT_EQ(read_text(folder.file("run/config.toml")), options);
  // That of the weights is in their checkpoint.
  ASSERT_THAT(run_trainer({"--data", "synthetic:60x1x8x8:4", "--steps", "2", "--init-from", folder.file("weights"),
                           "--out", folder.file("tuned")}),
              ends(0));
  std::filesystem::remove_all(folder.file("tuned/checkpoints"));
  std::filesystem::remove(folder.file("weights.toml"));
  EXPECT_THAT(run_trainer({"--resume", "--out", folder.file("tuned")}), ends(0, "starting afresh"));
}

TEST(Resume, RemovesWhatAJobLeftThatWasKilledWhileItWroteItsOptions) {
  const ScratchFolder folder;
  std::ofstream(folder.file("config.toml.tmp.node.1")) << "epochs = ";
  std::ofstream(folder.file("notes.tmp.mine")) << "kept";
  ASSERT_EQ(run_trainer(run_words(folder.path(), {"--steps", "1", "--resume"})).status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder.file("config.toml.tmp.node.1")));
  EXPECT_TRUE(std::filesystem::exists(folder.file("notes.tmp.mine")));
}

TEST(Resume, OfDamagedCheckpointsOnlyEndsWithItsOwnStatus) {
  const ScratchFolder folder;
  ASSERT_EQ(run_trainer(run_words(folder.path(), {"--steps", "2"})).status, 0);
  for (const auto& file : std::filesystem::directory_iterator(folder.path() + "/checkpoints")) {
    if (file.path().extension() == ".h5") std::filesystem::resize_file(file.path(), file.file_size() - 1);
  }
  const ChildResult result = run_trainer(2, {"--resume", "--out", folder.path()});
  EXPECT_EQ(result.status, 66) << result.err;
  EXPECT_EQ(count(result.err, "trainer: "), 1) << result.err;
}

TEST(Resume, OnOtherDataIsRefused) {
  const ScratchFolder folder;
  ASSERT_EQ(run_trainer(run_words(folder.path() + "/run", {"--steps", "2"})).status, 0);
  EXPECT_THAT(run_trainer({"--resume", "--out", folder.path() + "/run", "--data", "synthetic:400x1x12x12:4"}),
              ends(65, "--data"));
}

TEST(Resume, WritesRecordsThatATableReaderCanFollow) {
  const ScratchFolder folder;
  ASSERT_EQ(
      run_trainer(2, run_words(folder.path(), {"--epochs", "1", "--log-every", "2", "--digest-every", "3"})).status, 0);
  const std::string text = read_text(folder.path() + "/metrics.jsonl");
  EXPECT_TRUE(text.starts_with("{\"event\":\"run\",")) << text;
  EXPECT_EQ(count(text, "\"event\":\"step\""), 3) << text;
  EXPECT_EQ(count(text, "\"event\":\"digest\""), 2) << text;
  EXPECT_EQ(count(text, "\"event\":\"epoch\""), 1) << text;
  EXPECT_NE(read_text(folder.path() + "/config.toml").find("batch-size = 64"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/checkpoints/step-00000007.h5"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/checkpoints/step-00000007.json"));
}

}  // namespace
}  // namespace tutti::test
