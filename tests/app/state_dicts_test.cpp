// --init-from with files of PyTorch. A python3 in PATH stands for one with PyTorch: its tools/export copies a
// checkpoint.

#include "support/child_process.hpp"
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

using ::testing::HasSubstr;

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
    EXPECT_THAT(begun.err, HasSubstr(expected + folder_.file("cache/tutti/weights-")));
  }
  EXPECT_EQ(read_text(folder_.file("calls")), "called\n");
  write("a.pth", "another state dict");
  EXPECT_EQ(start(0, from_file).status, 0);
  EXPECT_EQ(read_text(folder_.file("calls")), "called\ncalled\n");
}

TEST_F(StateDicts, ThatCannotBeConvertedAreRefusedWithTheCommand) {
  write("a.safetensors", "not one");
  write_python("exit 1");
  const ChildResult refused = start(2, {"--init-from", folder_.file("a.safetensors")});
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("a.safetensors could not be converted: "));
  EXPECT_THAT(refused.err, HasSubstr("make one of it with tools/export '" + folder_.file("a.safetensors") +
                                     "' --names torchvision --to-checkpoint '" + folder_.file("a.h5'")));
  EXPECT_NE(start(2, {"--init-from", folder_.file("absent.pth")}).err.find("there is no '"), std::string::npos);
}

}  // namespace
}  // namespace tutti::test
