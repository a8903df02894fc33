// --init-from with files of PyTorch. A python3 in PATH stands for one with PyTorch: its tools/export copies a
// checkpoint.

#include "tutti/storage/checkpoint_store.hpp"

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

namespace tutti::test {
namespace {

using ::testing::Not;

class StateDicts : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_.file(name)) << text; }
  void write_python(const std::string& script) const {
    std::filesystem::create_directories(folder_.file("bin"));
    write("bin/python3", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(folder_.file("bin/python3"), std::filesystem::perms::owner_all);
  }
  // Under mpiexec, which puts the folder of its own first, python3 is another one.
  ChildResult start(int ranks, const Words& more) const {
    const Words words = with(
        {"--model", "linear", "--data", "synthetic:40x1x4x4:2", "--batch-size", "20", "--steps", "1", "--threads", "1"},
        more);
    return run_child(trainer_words(ranks, words), {{"XDG_CACHE_HOME", folder_.file("cache")},
                                                   {"PATH", folder_.file("bin") + ":" + std::getenv("PATH")}});
  }

  ScratchFolder folder_;
};

TEST_F(StateDicts, AreConvertedOnceForAllRunsThatStartFromThem) {
  const ChildResult first = start(2, {"--seed", "5", "--out", folder_.file("run")});
  ASSERT_EQ(first.status, 0) << first.err;
  write("a.pth", "a state dict");
  write_python(
      fmt::format("[ \"$3 $4 $5\" = '--names torchvision --to-checkpoint' ] || exit 1\necho called >> {}\n"
                  "cp {}/checkpoints/step-00000001.h5 \"$6\"",
                  folder_.file("calls"), folder_.file("run")));
  const Words from_file{"--lr", "0", "--momentum", "0", "--init-from", folder_.file("a.pth")};
  for (const auto& [ranks, expected] : {std::pair(0, "a.pth is converted to "), {2, "a.pth was converted to "}}) {
    const ChildResult begun = start(ranks, from_file);
    ASSERT_EQ(begun.status, 0) << begun.err;
    EXPECT_EQ(last_word(begun.err, "weights "), last_word(first.err, "weights "));
    EXPECT_THAT(begun.err, mentions(expected + folder_.file("cache/tutti/weights-")));
  }
  EXPECT_EQ(read_text(folder_.file("calls")), "called\n");
  write("a.pth", "another state dict");
  EXPECT_EQ(start(0, from_file).status, 0);
  EXPECT_EQ(read_text(folder_.file("calls")), "called\ncalled\n");
}

TEST_F(StateDicts, ThatCannotBeConvertedAreRefusedWithTheReasonAlone) {
  const std::string file = folder_.file("a.safetensors");
  write("a.safetensors", "not one");
  for (const auto& [script, reason] : {std::pair<std::string, std::string>("exit 1", "export ended with status 1\n"),
                                       {"echo 'tools/export: '$3': it is empty' >&2; exit 1", "it is empty\n"},
                                       {"echo first >&2; echo 'python3 lacks torch: a remedy' >&2; exit 1",
                                        file + " cannot be converted: python3 lacks torch: a remedy\n"}}) {
    write_python(script);
    const ChildResult refused = start(0, {"--init-from", file});
    EXPECT_THAT(refused, ends(66, reason));
    EXPECT_THAT(refused.err, Not(mentions("--to-checkpoint")));  // which has just failed
  }
  EXPECT_NE(start(2, {"--init-from", folder_.file("absent.pth")}).err.find("there is no '"), std::string::npos);
}

// A state dict has no images; the checkpoint that tools/export makes of it names torchvision's usual ones.
TEST_F(StateDicts, SayNothingAboutTheImagesThatTheyWereTrainedOn) {
  ASSERT_EQ(start(0, {"--out", folder_.file("run")}).status, 0);
  TrainState state = load_checkpoint(folder_.file("run/checkpoints/step-00000001.h5")).state;
  state.command_line = "tools/export --names torchvision";
  state.model = "name = \"linear\"\nlayer = [{name = \"dense1\", type = \"linear\", units = \"classes\"}]\n";
  const std::string image = "[1,4,4]";
  state.data.replace(state.data.find(image), image.size(), "[1,8,8]");
  const std::string made = CheckpointStore(folder_.file("made")).save(state).path;
  write("a.pth", "a state dict");
  write_python(fmt::format("cp {} \"$6\"", made));
  for (const std::string& file : {folder_.file("a.pth"), made}) {
    const ChildResult begun = start(0, {"--normalize", "0.5/0.25", "--init-from", file});
    ASSERT_EQ(begun.status, 0) << begun.err;
    EXPECT_THAT(begun.err, Not(mentions("8 x 8")));
    EXPECT_THAT(begun.err, mentions("torchvision's weights, as perhaps those of " + file + ", are usually trained",
                                    "initialized from " + file));
  }
  EXPECT_THAT(run_child(trainer_words(0, {"inspect", made}), {}).out,
              mentions("linear, 1 layer\n", "unknown: the weights are those of a state dict\n",
                       "images of 1x8x8 are assumed, 2 classes\n"));
}

}  // namespace
}  // namespace tutti::test
