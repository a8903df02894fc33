// Commands that read checkpoints: inspect, eval, diff, and --init-from.

#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

namespace tutti::test {
namespace {

using testing::Not;
namespace fs = std::filesystem;

constexpr const char* kTiny = R"(
name = "tiny"
layer = [
  {name = "conv", type = "conv2d", channels = 3, kernel = 3},
  {name = "norm", type = "batch-norm", relu = true},
  {name = "pool", type = "global-average-pool"},
  {name = "head", type = "linear", units = "classes"},
]
)";

// A run with checkpoints of steps 4 and 8, the last one also without its manifest; each test has its own copy.
class Checkpoints : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    trained_.emplace();
    std::ofstream(trained_->file("tiny.toml")) << kTiny;
    const ChildResult run = run_trainer(
        with(model(trained_->file("tiny.toml")), {"--data", "synthetic:120x1x8x8:4", "--epochs", "2",
                                                  "--checkpoint-every", "4", "--out", trained_->file("run")}));
    ASSERT_EQ(run.status, 0) << run.err;
    weights_ = last_word(run.err, "weights ");
    fs::copy_file(trained_->file("run/checkpoints/step-00000008.h5"), trained_->file("alone.h5"));
  }
  static void TearDownTestSuite() { trained_.reset(); }
  void SetUp() override { fs::copy(trained_->path(), folder_.path(), fs::copy_options::recursive); }

  static Words model(const std::string& path) { return {"--model", path, "--batch-size", "30", "--seed", "3"}; }
  Words tiny() const { return model(folder_.file("tiny.toml")); }
  std::string run() const { return folder_.file("run"); }
  std::string alone() const { return folder_.file("alone.h5"); }
  std::string of_step(int step) const {
    return folder_.file("run/checkpoints/step-0000000" + std::to_string(step) + ".h5");
  }
  static void damage(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-9, std::ios::end);
    file.put('\x5a');
  }

  static std::optional<ScratchFolder> trained_;
  static std::string weights_;  // digest
  ScratchFolder folder_;
};
std::optional<ScratchFolder> Checkpoints::trained_;
std::string Checkpoints::weights_;

TEST_F(Checkpoints, AreInspectedOnceOnAnyNumberOfRanks) {
  const ChildResult seen = run_trainer(2, {"inspect", of_step(8), "--json", folder_.file("seen.json")});
  ASSERT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(count(seen.out, "progress\n"), 1) << seen.out;
  for (const std::string& expected :
       {std::string("verified      sizes, SHA-256"), std::string("step-00000008.h5, "), std::string("8 of 8 planned"),
        std::string("2 done"), std::string("correct ("), std::string("--checkpoint-every 4"),
        std::string("batch-size = 30"), std::string("images of 1x8x8, 4 classes\n"), std::string("tiny, 4 layers"),
        "parameters: 6 tensors of 52 f32 values, 0.2 KiB, digest " + weights_, std::string("conv/weight  3x1x3x3"),
        std::string("statistics: 2 tensors"), std::string("velocity/head/bias"), std::string("exchange: none")}) {
    EXPECT_THAT(seen.out, mentions(expected));
  }
  EXPECT_THAT(seen.out, Not(mentions("momentum =")));  // it has its default
  const std::string json = read_text(folder_.file("seen.json"));
  for (const char* expected :
       {"\"verified\": true", "\"sha256\": \"", "\"planned_steps\": 8", "\"classes\": 4", "\"name\": \"norm/mean\""}) {
    EXPECT_THAT(json, mentions(expected));
  }
}

TEST_F(Checkpoints, PrintATensorLineByLineWithPlaces) {
  const ChildResult kernel = run_trainer({"inspect", of_step(8), "--tensor", "parameters/conv/weight"});
  ASSERT_EQ(kernel.status, 0) << kernel.err;
  EXPECT_EQ(count(kernel.out, "\n["), 9) << kernel.out;
  EXPECT_EQ(count(kernel.out, "\n\n["), 2) << kernel.out;
  EXPECT_THAT(kernel.out, mentions("\n[2, 0, 1, 0] "));
  EXPECT_EQ(run_trainer({"inspect", of_step(8), "--tensor", "norm/mean"}).status, 0);
  EXPECT_THAT(run_trainer({"inspect", of_step(8), "--tensor", "norm/weight"}), ends(64, "has no tensor of that name"));
}

TEST_F(Checkpoints, OfAFolderAreAllVerifiedAndTheNewestGoodOneIsShown) {
  damage(of_step(8));
  for (const std::string& folder : {run(), run() + "/checkpoints"}) {
    const ChildResult seen = run_trainer({"inspect", folder});
    ASSERT_EQ(seen.status, 0) << seen.err;
    EXPECT_THAT(seen.out,
                mentions("step-00000008.h5      not good: ", "step-00000004.h5      good\n", "4 of 8 planned"));
  }
  const ChildResult evaluated = run_trainer(2, {"eval", "--checkpoint", run()});
  EXPECT_EQ(evaluated.status, 0) << evaluated.err;
  EXPECT_EQ(count(evaluated.err, "warning: skipped checkpoint"), 1) << evaluated.err;
  fs::remove(of_step(8));
  fs::rename(of_step(4), of_step(4) + ".bad");
  const ChildResult none = run_trainer({"inspect", run()});
  EXPECT_THAT(none, ends(66));
  EXPECT_THAT(none.out, mentions("step-00000004.h5.bad  not good: a resume has found it damaged"));
  EXPECT_TRUE(fs::exists(folder_.file("run/checkpoints/step-00000008.json"))) << "nothing is changed there";
}

TEST_F(Checkpoints, AreNotTouchedByADryRun) {
  damage(of_step(8));
  const ChildResult dry = run_trainer({"--dry-run", "--resume", "--out", run()});
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_EQ(count(dry.err, "warning: skipped checkpoint"), 1) << dry.err;
  EXPECT_TRUE(fs::exists(of_step(8)));
}

TEST_F(Checkpoints, MayHoldATensorWithoutValues) {
  TrainState state;
  state.parameters = {{"head/weight", Shape{0, 3}, {}}};
  const std::string path = CheckpointStore(folder_.path()).save(state).path;
  for (const Words& options : {Words{}, Words{"--tensor", "head/weight"}}) {
    EXPECT_THAT(run_trainer(with({"inspect", path}, options)), ends(0));
  }
}

TEST_F(Checkpoints, ThatAreDamagedOrMissingAreRefusedWithTheReason) {
  damage(of_step(8));
  for (const Words& command : {Words{"inspect"}, Words{"eval", "--checkpoint"}}) {
    EXPECT_THAT(run_trainer(2, with(command, {of_step(8)})), ends(66, "SHA-256"));
    EXPECT_EQ(run_trainer(2, with(command, {"none.h5"})).status, 66);
  }
}

TEST_F(Checkpoints, AreRequestedWhereAnotherFileOrFolderIsNamed) {
  const std::string photos = folder_.file("photos.h5");
  ASSERT_EQ(run_trainer({"data", "convert", "synthetic:40x1x8x8:4", photos}).status, 0);
  EXPECT_THAT(run_trainer(2, {"eval", "--checkpoint", photos}),
              ends(66, "'" + photos +
                           "' is not a checkpoint (it is a data set): give a run's folder, or one "
                           "of its checkpoints"));
  std::ofstream(folder_.file("1.jpg")) << "an image";
  EXPECT_THAT(run_trainer({"inspect", folder_.file("1.jpg")}),
              ends(66, "1.jpg' has no seal", ": give a run's folder, or one of its checkpoints"));
  fs::create_directory(folder_.file("other"));
  EXPECT_THAT(run_trainer({"diff", run(), folder_.file("other")}),
              ends(65, "other' is not a run: it holds neither metrics.jsonl nor checkpoints"));
  EXPECT_THAT(run_trainer({"diff", run(), ""}), ends(74, "cannot read ''"));
}

TEST_F(Checkpoints, AreMadeByAnExportOfTheFilesOfOtherPrograms) {
  const auto refuses = [&](const Words& command, const std::string& name, const std::string& remedy) {
    std::ofstream(folder_.file(name)) << "not a checkpoint";
    EXPECT_THAT(run_trainer(command), ends(66, "tools/export '" + folder_.file(name), remedy + folder_.file("a.h5")));
  };
  for (const auto& [name, remedy] : {std::pair("a.pth", "--names torchvision --to-checkpoint '"),
                                     {"a.safetensors", "--names torchvision --to-checkpoint '"},
                                     {"a.onnx", "a.onnx' --to-checkpoint '"}}) {
    refuses({"eval", "--checkpoint", folder_.file(name)}, name, remedy);
  }
  // --init-from converts state dicts itself.
  refuses(with(tiny(), {"--data", "synthetic:120x1x8x8:4", "--init-from", folder_.file("a.onnx")}), "a.onnx",
          "a.onnx' --to-checkpoint '");
}

TEST_F(Checkpoints, WithoutAManifestAreVerifiedByTheirSeal) {
  const ChildResult seen = run_trainer({"inspect", alone()});
  EXPECT_THAT(seen, ends(0));
  EXPECT_THAT(seen.out, mentions("verified      its seal and its digests match; it has no manifest"));
  const ChildResult evaluated = run_trainer(2, {"eval", "--checkpoint", alone()});
  EXPECT_EQ(evaluated.out, run_trainer({"eval", "--checkpoint", run()}).out);
  EXPECT_EQ(count(evaluated.err, "warning"), 0) << evaluated.err;
  EXPECT_THAT(run_trainer({"diff", alone(), of_step(8)}), ends(0));
}

TEST_F(Checkpoints, WithoutManifestAndSealAreReadOnlyOnceTheyAreSealed) {
  const std::string old = folder_.file("old.h5");
  const std::string sealed = folder_.file("sealed.h5");
  fs::copy_file(alone(), old);
  fs::resize_file(old, fs::file_size(old) - 1);
  for (const Words& words : {Words{"inspect", old}, Words{"eval", "--checkpoint", old}, Words{"diff", old, of_step(8)},
                             Words{"predict", "--checkpoint", old}}) {
    EXPECT_THAT(run_trainer(words), ends(66, "inspect '" + old + "' --seal NEW.h5"));
  }
  EXPECT_THAT(run_trainer({"inspect", old, "--seal", sealed}), ends(0));
  EXPECT_EQ(read_file_bytes(sealed), read_file_bytes(alone()));
  EXPECT_EQ(run_trainer({"inspect", run(), "--seal", sealed}).status, 64) << "it would replace a checkpoint";
  const std::string newest = folder_.file("newest.h5");
  EXPECT_THAT(run_trainer({"inspect", run(), "--seal", newest}), ends(0));
  EXPECT_EQ(run_trainer({"diff", newest, of_step(8)}).status, 0);
}

TEST_F(Checkpoints, EscapeControlCharactersInTheNamesOfTensors) {
  TrainState state = load_checkpoint(of_step(8)).state;
  state.parameters.front().name = "esc\x1b[31m/bias";
  CheckpointStore(folder_.file("forged")).save(state);
  for (const Words& options : {Words{}, Words{"--tensor", state.parameters.front().name}}) {
    const ChildResult seen = run_trainer(with({"inspect", folder_.file("forged/step-00000008.h5")}, options));
    EXPECT_THAT(seen, ends(0));
    EXPECT_THAT(seen.out, mentions("esc\\x1b[31m/bias "));
    EXPECT_THAT(seen.out, Not(mentions("\x1b")));
  }
}

TEST_F(Checkpoints, AreReadAgainHoweverManyDotsTheirOptionsHave) {
  std::string out = folder_.path();
  for (int i = 0; i < 70; ++i) out += "/run/..";
  out += "/dots";
  const Words dotted{"--model", "linear", "--data", "synthetic:60x65x8x8:4", "--normalize", "auto", "--out", out};
  ASSERT_EQ(run_trainer(with(dotted, {"--steps", "1"})).status, 0);
  EXPECT_THAT(run_trainer({"--resume", "--out", out, "--steps", "2"}), ends(0));
  EXPECT_EQ(run_trainer({"eval", "--checkpoint", out}).status, 0);
  EXPECT_EQ(run_trainer({"diff", out, out}).status, 0);
  EXPECT_THAT(run_trainer({"--model", "linear", "--data", "synthetic:60x1x8x8:4", "--out", out + "'''"}),
              ends(65, "the checkpoints of this run could not be read again"));
}

TEST_F(Checkpoints, GiveTheirWeightsToAnotherRun) {
  const ChildResult same = run_trainer(2, with(tiny(), {"--data", "synthetic:120x1x8x8:4", "--epochs", "1", "--lr", "0",
                                                        "--momentum", "0", "--init-from", alone()}));
  ASSERT_EQ(same.status, 0) << same.err;
  EXPECT_EQ(last_word(same.err, "weights "), weights_);
  EXPECT_THAT(same.err, mentions("initialized from " + alone() + " (step 8)\n"));
}

TEST_F(Checkpoints, AlsoGiveTheirNetworkUnlessAnotherIsNamed) {
  const Words plan{
      "--batch-size", "30", "--seed",     "3", "--data", "synthetic:120x1x8x8:4", "--epochs",    "1",
      "--lr",         "0",  "--momentum", "0", "--out",  folder_.file("next"),    "--init-from", run() + "@4"};
  EXPECT_THAT(run_trainer(with({"check"}, plan)), ends(0));
  const ChildResult begun = run_trainer(2, plan);
  ASSERT_EQ(begun.status, 0) << begun.err;
  EXPECT_THAT(begun.err, mentions("tiny: 52 parameters", "initialized from " + of_step(4) + " (step 4)\n"));
  EXPECT_THAT(read_text(folder_.file("next/config.toml")), mentions("/tiny.toml\"\n"));
  EXPECT_THAT(run_trainer({"--resume", "--out", run(), "--lr", "0.5"}),
              ends(65, "start a new run with these weights: --init-from " + of_step(8)));
}

TEST_F(Checkpoints, AreNamedByTheirStepOrAsTheBestInEveryCommand) {
  for (const char* which : {"4", "8"}) {
    const ChildResult evaluated = run_trainer(
        2, {"eval", "--checkpoint", run() + "@" + which, "--on", "train", "--json", folder_.file("e.json")});
    ASSERT_EQ(evaluated.status, 0) << evaluated.err;
    EXPECT_THAT(evaluated.err, mentions("@" + std::string(which) + " is " + of_step(which[0] - '0') + ", after step "));
    EXPECT_THAT(read_text(folder_.file("e.json")), mentions("\"step\": " + std::string(which)));
  }
  const ChildResult seen = run_trainer({"inspect", run() + "@best"});
  ASSERT_EQ(seen.status, 0) << seen.err;
  EXPECT_THAT(seen.out, mentions("after step " + last_word(seen.out, "\n  step          ").substr(0, 1) + "\n"));
  EXPECT_EQ(run_trainer({"diff", run() + "/checkpoints@4", of_step(4)}).status, 0);
  EXPECT_EQ(run_trainer({"diff", run() + "@4", run() + "@8"}).status, 1);
  EXPECT_EQ(run_trainer({"predict", "--checkpoint", run() + "@4", "--on", "train", "--quiet"}).status, 0);
  const ChildResult page = run_trainer({"report", run() + "@4"});
  EXPECT_THAT(page, ends(0));
  EXPECT_THAT(page.out, mentions("/run/report.html: ", ", images classified by step-00000004.h5\n"));
}

// At a learning rate of 0 all evaluations are equal, and the first of equals is the best.
TEST_F(Checkpoints, WithTheBestEvaluationAreNamedAtTheEndOfTheRunAndWhenAnotherIsUsed) {
  const std::string out = folder_.file("best");
  const Words run{"--data",       "synthetic:40x1x4x4:2",
                  "--model",      "linear",
                  "--batch-size", "10",
                  "--lr",         "0",
                  "--epochs",     "4",
                  "--out",        out,
                  "--keep-best"};
  const ChildResult trained = run_trainer(2, run);
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string accuracy = trained.out.substr(trained.out.find("test acc ") + 9, 6);
  EXPECT_THAT(trained.err, mentions("best test accuracy " + accuracy + " at epoch 1: " + out + "@best\n"));
  const std::string better = "the run's best evaluation was that after step 4, with test accuracy " + accuracy + ": " +
                             out + "@best has that checkpoint\n";
  for (const std::string& other : {out, out + "@12", out + "/checkpoints/step-00000016.h5"}) {
    EXPECT_THAT(run_trainer(2, {"eval", "--checkpoint", other}).err, mentions(better)) << other;
  }
  EXPECT_THAT(run_trainer({"predict", "--checkpoint", out}).err, mentions(better));
  EXPECT_THAT(run_trainer({"report", out, "--no-images"}).err, mentions(better));
  EXPECT_THAT(run_trainer({"eval", "--checkpoint", out + "@best"}).err, ::testing::Not(mentions("best evaluation")));
}

TEST_F(Checkpoints, ThatDoNotExistAreReportedWithThoseThatDo) {
  for (const auto& [which, expected] : {std::pair("@5", "has no checkpoint of step 5; it has steps 4, 8"),
                                        std::pair("@newest", "one of its checkpoints as RUN@best or RUN@STEP"),
                                        std::pair("@99999999999999999999", "there is no '")}) {
    EXPECT_THAT(run_trainer(2, {"eval", "--checkpoint", run() + which}), ends(66, expected));
  }
  const ChildResult file = run_trainer({"inspect", of_step(8) + "@best"});
  EXPECT_THAT(file, ends(66, "is not the folder of a run: leave '@best' out"));
  fs::rename(run(), folder_.file("run@best"));  // an existing name takes precedence
  EXPECT_EQ(run_trainer({"eval", "--checkpoint", folder_.file("run@best"), "--on", "train"}).status, 0);
}

TEST_F(Checkpoints, StartTheSameRunOnOtherClassesOnAnyRanksAndAreReadOnce) {
  const Words other{"--data", "synthetic:120x1x8x8:6", "--normalize", "auto", "--epochs", "2", "--parts",
                    "3",      "--init-from",           of_step(8)};
  const std::string out = folder_.file("other");
  const ChildResult whole = run_trainer(with(tiny(), other));
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.err, mentions("newly initialized: head/weight, head/bias\n"));
  ASSERT_THAT(run_trainer(3, with(tiny(), with(other, {"--steps", "3", "--out", out, "--resume"}))), ends(0));
  fs::remove_all(run());
  const ChildResult rest = run_trainer(2, {"--resume", "--out", out, "--steps", "0"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(last_word(rest.err, "weights "), last_word(whole.err, "weights "));
}

TEST_F(Checkpoints, OfAnotherNetworkDoNotInitializeARun) {
  EXPECT_THAT(run_trainer(2, {"--model", "mlp", "--data", "synthetic:120x1x8x8:4", "--init-from", of_step(8)}),
              ends(65, "in the checkpoint, but"));
  const Words mlp{"--model", "mlp", "--steps", "1", "--data"};
  const std::string small = folder_.file("small");
  ASSERT_THAT(run_trainer(with(mlp, {"synthetic:120x1x8x8:4", "--out", small})), ends(0));
  EXPECT_THAT(run_trainer(2, with(mlp, {"synthetic:120x1x16x16:4", "--init-from", small})),
              ends(65, "on 8 x 8: resize them with --image-size 8 (", "in the checkpoint, but"));
  EXPECT_EQ(run_trainer(2, with(tiny(), {"--data", "synthetic:120x1x8x8:4", "--init-from", "none.h5"})).status, 66);
}

TEST_F(Checkpoints, AreEvaluatedByTheirAverageOrTheirLastWeights) {
  const std::string averaged = folder_.file("averaged");
  const ChildResult run = run_trainer(with(tiny(), {"--data", "synthetic:120x1x8x8:4", "--epochs", "2", "--ema", "0.99",
                                                    "--stop-at-accuracy", "0.01", "--out", averaged}));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, mentions("the run ends early: the test accuracy "));
  EXPECT_THAT(read_text(averaged + "/metrics.jsonl"), mentions("\"status\":\"done\",\"reason\":\"the test accuracy "));
  const auto evaluation = [&](const Words& more) {
    const ChildResult result = run_trainer(with({"eval", "--checkpoint", averaged}, more));
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  const std::string average = evaluation({});
  EXPECT_THAT(run.out, mentions(average.substr(average.find("test acc"), 15)));
  EXPECT_EQ(evaluation({"--weights", "ema"}), average);
  EXPECT_NE(evaluation({"--weights", "last"}), average);
  EXPECT_NE(evaluation({"--views", "flip"}), average);
  EXPECT_THAT(run_trainer({"eval", "--checkpoint", of_step(8), "--weights", "ema"}),
              ends(66, "holds no average, since its run has no --ema"));
  const ChildResult again = run_trainer({"--resume", "--out", averaged});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, Not(mentions("nothing left to do")));
  EXPECT_THAT(run_trainer(with(tiny(), {"--data", "synthetic:120x1x8x8:4", "--steps", "1", "--lr", "0", "--init-from",
                                        averaged, "--freeze", "norm"})),
              ends(0));
}

}  // namespace
}  // namespace tutti::test
