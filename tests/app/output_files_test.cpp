// Commands write files to paths that are links, pipes, devices and folders.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

namespace tutti::test {
namespace {

namespace fs = std::filesystem;

Words training(const std::string& more) {
  return words_of("--data synthetic:96x1x6x6:4 --model mlp --batch-size 16 --epochs 1 --threads 1 --quiet " + more);
}

class OutputFiles : public ::testing::Test {
 protected:
  OutputFiles() { EXPECT_THAT(run_trainer(training("--out " + run_)), ends(0)); }

  const ScratchFolder folder_;
  const std::string run_ = folder_.file("run");
};

TEST_F(OutputFiles, OfEveryCommandFollowLinks) {
  const std::string link = folder_.file("link.png");
  const std::string real = folder_.file("real");
  fs::create_symlink("real", link);
  const std::string steps = "--data synthetic:96x1x6x6:4 --model mlp --batch-size 16 --threads 1 ";
  const std::vector<Words> commands{
      words_of("eval --checkpoint " + run_ + " --json"),
      words_of("predict --checkpoint " + run_ + " --csv"),
      words_of("predict --checkpoint " + run_ + " --json"),
      words_of("inspect " + run_ + " --json"),
      words_of("report " + run_ + " --no-images -o"),
      words_of("check " + steps + "--json"),
      words_of("bench step " + steps + "--timed-steps 1 --warmup-steps 1 --json"),
      words_of("data show synthetic:96x1x6x6:4"),
      training("--trace"),
      training("--sample-log"),
  };
  for (const Words& command : commands) {
    const ChildResult result = run_trainer(with(command, {link}));
    EXPECT_EQ(result.status, 0) << command.front() << " " << command.back() << ": " << result.err;
    EXPECT_TRUE(fs::is_symlink(link)) << command.front() << " " << command.back();
    EXPECT_TRUE(fs::remove(real)) << command.front() << " " << command.back();
  }
  fs::remove(link);
  fs::create_symlink("/dev/null", link);
  EXPECT_EQ(run_trainer(with(commands.front(), {link})).status, 0);
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST_F(OutputFiles, MayBePipesWithReadersButNoOtherPipesAndNoFolders) {
  const std::string pipe = folder_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Words eval = words_of("eval --checkpoint " + run_ + " --json");
  EXPECT_THAT(run_trainer(with(eval, {pipe})), ends(73, "start what reads from it first"));
  EXPECT_EQ(run_trainer(training("--sample-log " + pipe)).status, 73);
  EXPECT_EQ(run_trainer(with(eval, {folder_.path()})).status, 73);
  EXPECT_EQ(run_trainer(with(eval, {"/dev/full"})).status, 73);
  EXPECT_TRUE(fs::is_fifo(pipe));
  for (const auto& [read, word] :
       {std::pair<std::string, std::string>("eval --checkpoint $RUN --json $PIPE", "accuracy"),
        {"--epochs 1 --sample-log $PIPE", "\"parts\""}}) {
    EXPECT_THAT(
        run_script(1,
                   "cat $PIPE > $PIPE.read & exec 3>$PIPE; \"$T\" " + read + " --quiet; s=$?; exec 3>&-; wait; exit $s",
                   {{"RUN", run_}, {"PIPE", pipe}}),
        ends(0));
    EXPECT_THAT(read_text(pipe + ".read"), mentions(word));
  }
}

TEST_F(OutputFiles, NeverReplaceACheckpointOrWhatBelongsToARun) {
  const std::string checkpoint = run_ + "/checkpoints/step-00000006";
  const std::string data = folder_.file("data.h5");
  ASSERT_EQ(run_trainer(words_of("data convert synthetic:96x1x6x6:4 " + data)).status, 0);
  const std::string encoded = folder_.file("encoded.h5");
  fs::create_directories(folder_.file("images/class"));
  ASSERT_EQ(run_trainer(words_of("data show synthetic:96x1x6x6:4 " + folder_.file("images/class/1.png"))).status, 0);
  ASSERT_EQ(run_trainer(words_of("data convert " + folder_.file("images") + " " + encoded + " --encoded")).status, 0);
  for (const std::string& set : {data, encoded}) {
    EXPECT_THAT(run_trainer(words_of("inspect " + run_ + " --json " + set)), ends(64, "this would replace a data set"));
    EXPECT_THAT(run_trainer(words_of("eval --checkpoint " + set)), ends(66, "is not a checkpoint (it is a data set)"));
  }
  const std::string predict = "predict --checkpoint " + run_ + " ";
  for (const auto& [command, file] : {std::pair<std::string, std::string>(predict + "--json ", checkpoint + ".json"),
                                      {predict + "--csv ", checkpoint + ".h5"},
                                      {"eval --checkpoint " + run_ + " --json ", run_ + "/config.toml"},
                                      {"inspect " + run_ + " --json ", encoded},
                                      {"inspect " + run_ + " --seal ", checkpoint + ".h5"},
                                      {"check --data synthetic:96x1x6x6:4 --json ", run_ + "/metrics.jsonl"},
                                      {"--data synthetic:96x1x6x6:4 --model mlp --trace ", checkpoint + ".json"},
                                      {"--data synthetic:96x1x6x6:4 --model mlp --sample-log ", data}}) {
    const std::string before = read_text(file);
    const ChildResult result = run_trainer(words_of(command + file));
    EXPECT_EQ(result.status, 64) << command << result.err;
    EXPECT_THAT(result.err, mentions("this would replace")) << command;
    EXPECT_EQ(read_text(file), before) << command;
  }
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(run_trainer(words_of(predict + "--json " + folder_.file("rows.json"))).status, 0);
  }
}

TEST_F(OutputFiles, ThatAreStdoutFollowThePrintedText) {
  const std::string out = folder_.file("out");
  EXPECT_THAT(run_script(1, "echo before > $OUT; \"$T\" eval --checkpoint $RUN --json /dev/stdout --quiet >> $OUT",
                         {{"RUN", run_}, {"OUT", out}}),
              ends(0));
  const std::string text = read_text(out);
  EXPECT_TRUE(text.starts_with("before\ntest loss ")) << text;
  EXPECT_TRUE(text.ends_with("}\n")) << text;
}

TEST_F(OutputFiles, OfSamplesAreTruncatedUnlessTheRunIsResumed) {
  const std::string log = folder_.file("samples.jsonl");
  const auto steps = [&] { return count(read_text(log), "\"step\":"); };
  const std::string more = folder_.file("more");
  EXPECT_EQ(run_trainer(training("--steps 4 --sample-log " + log)).status, 0);
  EXPECT_EQ(run_trainer(training("--steps 2 --out " + more + " --sample-log " + log)).status, 0);
  EXPECT_EQ(steps(), 2);
  EXPECT_EQ(run_trainer(training("--steps 5 --resume --out " + more + " --sample-log " + log)).status, 0);
  EXPECT_EQ(steps(), 5);
}

}  // namespace
}  // namespace tutti::test
