#include "manual_page.hpp"

#include "tutti/base/version.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const DescribedCommand kTrain{.words = "train",
                              .does = "trains",
                              .options = {{"lr", "Training", "learning rate", "FLOAT", "0.05"},
                                          {"keep-best", "Keeping", ".h5 of the best; C:\\run", "", ""}}};
const DescribedCommand kBench{
    .words = "bench step",
    .does = "training steps",
    .operands = {{.name = "source", .help = "what to read", .value = "TEXT", .is_required = true},
                 {.name = "images", .help = "more", .value = "TEXT", .is_list = true}},
    .options = {{"lr", "Training", "learning rate", "FLOAT", "0.05"},
                {"keep-best", "Bench", "the best round alone", "", ""},
                {"timed-steps", "Bench", "steps measured", "INT", "20"}}};

TEST(ManualPage, TellsTheDefaultCommandsOptionsByGroup) {
  const std::string page = manual_page("tutti", {kTrain}, "Exit status: 0 done");
  EXPECT_THAT(page, HasSubstr(".TH \"TUTTI\" 1 \"\" \"Tutti " + std::string(version())));
  EXPECT_THAT(page, HasSubstr(".SS Training\n.TP\n\\fB\\-\\-lr\\fR \\fIFLOAT\\fR\nlearning rate [0.05]\n"));
  EXPECT_THAT(page, HasSubstr(".SH EXIT STATUS\n0 done\n"));
}

TEST(ManualPage, TellsOfOtherCommandsWhatTheyHaveAlone) {
  const std::string page = manual_page("tutti", {kTrain, kBench}, "Exit status: 0 done");
  EXPECT_THAT(
      page,
      HasSubstr(".SS bench step\n\\fBtutti bench step\\fR \\fISOURCE\\fR [\\fIIMAGES\\fR...] [\\fIOPTION\\fR]...\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-timed\\-steps\\fR \\fIINT\\fR\nsteps measured [20]\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-keep\\-best\\fR\nthe best round alone\n"));
  EXPECT_THAT(page, HasSubstr("And of train: \\fB\\-\\-lr\\fR.\n"));
}

TEST(ManualPage, KeepsDotsHyphensAndBackslashes) {
  const std::string page = manual_page("tutti", {kTrain}, "Exit status: 0 done");
  EXPECT_THAT(page, HasSubstr("\n\\&.h5 of the best; C:\\erun\n"));
}

TEST(ManualPage, HasEveryCommandAndOption) {
  const auto commands = describe_commands(nullptr);
  ASSERT_GT(commands.size(), 10u);
  const std::string page = manual_page("tutti", commands, "Exit status: 0 done");
  for (const DescribedCommand& command : commands) {
    EXPECT_THAT(page, HasSubstr("\\fBtutti " + command.words));
    for (const DescribedOption& option : command.options) {
      std::string name;
      for (const char c : option.name) name += c == '-' ? std::string("\\-") : std::string(1, c);
      EXPECT_THAT(page, HasSubstr("\\fB\\-\\-" + name + "\\fR"));
    }
  }
  EXPECT_THAT(page, Not(HasSubstr("\n\n")));  // man would break the page there
}

}  // namespace
}  // namespace tutti
