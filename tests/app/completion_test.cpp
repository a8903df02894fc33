#include "completion.hpp"

#include "support/child_process.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

// What bash offers for the last of these words, by the function that the program's script defines.
Words offered(const std::vector<std::string>& line) {
  const ScratchFolder folder;
  const ChildResult script = run_trainer({"--completion", "bash"});
  EXPECT_EQ(script.status, 0) << script.err;
  std::ofstream(folder.file("script")) << script.out;
  std::string words = "trainer";
  for (const std::string& word : line) words += " '" + word + "'";
  const ChildResult result = run_child({"/bin/bash", "-c",
                                        ". " + folder.file("script") + "; COMP_WORDS=(" + words +
                                            "); COMP_CWORD=" + std::to_string(line.size()) +
                                            "; _trainer; printf '%s\\n' \"${COMPREPLY[@]}\"; complete -p trainer"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  Words found = words_of(result.out);
  const Words registered{"complete", "-F", "_trainer", "trainer"};
  EXPECT_TRUE(found.size() >= 4 && std::equal(registered.begin(), registered.end(), found.end() - 4)) << result.out;
  found.resize(found.size() - std::min<std::size_t>(found.size(), 4));
  return found;
}

TEST(Completion, OffersCommandsByTheirWords) {
  EXPECT_EQ(offered({"ins"}), Words{"inspect"});
  EXPECT_EQ(offered({"bench", "all"}), Words{"allreduce"});
  EXPECT_EQ(offered({"data", "i"}), Words{"info"});
  EXPECT_EQ(offered({"data", ""}), (Words{"convert", "fetch", "info", "show"}));
  EXPECT_EQ(offered({"to"}), Words{"tour"});
  EXPECT_EQ(offered({""}).front(), "train");
}

TEST(Completion, OffersTheOptionsOfTheCommandAndNoOthers) {
  EXPECT_EQ(offered({"--weight-d"}), Words{"--weight-decay"});
  EXPECT_EQ(offered({"train", "--batch-size", "8", "--mom"}), Words{"--momentum"});
  EXPECT_EQ(offered({"bench", "step", "--timed"}), Words{"--timed-steps"});
  EXPECT_EQ(offered({"diff", "a", "--ep"}), Words{});
  EXPECT_EQ(offered({"eval", "--on", "test", "--batch"}), Words{});
  EXPECT_EQ(offered({"sweep", "--scal"}), Words{"--scale-lr"});
  EXPECT_EQ(offered({"data", "show", "--besi"}), Words{"--beside"});
  EXPECT_EQ(offered({"report", "run", "--no-im"}), Words{"--no-images"});
}

TEST(Completion, OffersTheWordsThatAnOptionChoosesAmong) {
  EXPECT_EQ(offered({"--optimizer", ""}), (Words{"sgd", "adamw", "lars"}));
  EXPECT_EQ(offered({"--optimizer", "=", "ad"}), Words{"adamw"});
  EXPECT_EQ(offered({"--optimizer", "="}), (Words{"sgd", "adamw", "lars"}));
  EXPECT_EQ(offered({"eval", "--on", ""}), (Words{"test", "train"}));
  EXPECT_EQ(offered({"predict", "--on", ""}), (Words{"test", "train", "all"}));
  EXPECT_EQ(offered({"--model", "resnet1"}), Words{"resnet18"});
  EXPECT_EQ(offered({"--epochs", ""}), Words{});
}

TEST(Completion, ForgetsNoOptionInAnyShell) {
  const auto commands = describe_commands(nullptr);
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(shell, "tutti", commands) + "\n";
    const std::string mark = shell == "fish" ? " -l " : "--";
    for (const DescribedCommand& command : commands) {
      for (const DescribedOption& option : command.options) {
        const bool is_there = std::ranges::any_of(std::string(" [=)'|\n"), [&](char end) {
          return script.find(mark + option.name + end) != std::string::npos;
        });
        EXPECT_TRUE(is_there) << shell << ": " << option.name;
      }
    }
  }
}

TEST(Completion, RefusesAShellThatItDoesNotKnow) {
  const ChildResult result = run_trainer({"--completion", "tcsh"});
  EXPECT_EQ(result.status, 64);
  EXPECT_NE(result.err.find("bash"), std::string::npos) << result.err;
}

// $TUTTI_SHELLS: bash, and those of zsh and fish that are installed.
TEST(Completion, IsReadByTheShellsThatAreHere) {
  const char* const shells = std::getenv("TUTTI_SHELLS");
  ASSERT_NE(shells, nullptr);
  for (const std::string& shell : words_of(shells)) {
    const ScratchFolder folder;
    std::ofstream(folder.file("script")) << run_trainer({"--completion", std::filesystem::path(shell).filename()}).out;
    const ChildResult result = run_child({shell, "-n", folder.file("script")});
    EXPECT_EQ(result.status, 0) << shell << ": " << result.err;
    EXPECT_EQ(result.err, "") << shell;
  }
}

}  // namespace
}  // namespace tutti::test
