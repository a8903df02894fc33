// The screening of this machine's cores, with and without a core that computes wrong values. TUTTI_SCREENINGS is the
// number of random faults, and of screenings without one.

#include "tutti/base/process.hpp"

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <string>

namespace tutti::test {
namespace {

const Words kScreen = words_of("screen --device cpu --seconds 0");

std::string last_core() { return "core " + std::to_string(allowed_cores().back()); }

// A fault of the last core. `where` has its step and layer.
Words wrong(const std::string& where) {
  return with(kScreen, {"--rehearse", "wrong:rank=" + std::to_string(allowed_cores().size() - 1) + "," + where});
}

TEST(ScreenCommand, FindsNothingOnRightCoresAndWritesTheFiguresOfEach) {
  const ScratchFolder folder;
  const ChildResult result =
      run_trainer(words_of("screen --device cpu --seconds 1 --drain print --json " + folder.file("all.json")));
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, mentions("screened ", " of " + host_name() + " in ", "; nothing is wrong"));
  EXPECT_EQ(count(result.out, "scontrol"), 0) << result.out;
  const auto json = nlohmann::json::parse(read_text(folder.file("all.json")));
  EXPECT_EQ(json["verdict"], "right");
  EXPECT_EQ(json["findings"].size(), 0U);
  ASSERT_EQ(json["units"].size(), allowed_cores().size());
  EXPECT_EQ(json["units"].back()["unit"], last_core());
  EXPECT_GE(json["units"].back()["rounds"], 2);
  EXPECT_GT(json["units"].back()["memory_bytes_per_second"], 0.0);
}

TEST(ScreenCommand, NamesCoreLayerAndPassOfResultsThatAreAlwaysWrong) {
  const ScratchFolder folder;
  const ChildResult result =
      run_trainer(with(wrong("steps=1-1000,layer=block1.conv1,pass=backward,kind=bit,element=9,bit=3"),
                       {"--drain", "print", "--json", folder.file("wrong.json")}));
  EXPECT_EQ(result.status, 87) << result.out << result.err;
  const std::string place = "the backward pass of block1.conv1 (residual, fp32)";
  EXPECT_THAT(result.out,
              mentions(last_core() + " on " + host_name() + " (cpu)", "is wrong: unlike ", "first in " + place,
                       "scontrol update NodeName=",
                       " State=DRAIN Reason=\"trainer screen: " + last_core() + " is wrong in " + place + "\"\n"));
  const auto json = nlohmann::json::parse(read_text(folder.file("wrong.json")));
  ASSERT_EQ(json["findings"].size(), 1U);
  const auto& finding = json["findings"][0];
  EXPECT_EQ(finding["unit"], last_core());
  EXPECT_EQ(finding["layer"], "block1.conv1");
  EXPECT_EQ(finding["pass"], "backward");
  EXPECT_EQ(finding["precision"], "fp32");
}

TEST(ScreenCommand, NamesACoreWhoseResultsAreWrongOnceInALaterRound) {
  EXPECT_THAT(run_trainer(wrong("step=14,layer=conv2,pass=forward,kind=stuck,element=0")).out,
              mentions(last_core(),
                       "it did not repeat its results, first different in the forward pass of conv2 (lenet, bf16)"));
}

TEST(ScreenCommand, DrainsTheHostIfTold) {
  const ScratchFolder folder;
  const std::string scontrol = folder.file("scontrol");
  for (const int status : {0, 3}) {
    std::ofstream(scontrol) << "#!/bin/sh\nprintf '%s|' \"$@\" >" << folder.file("words") << "\nexit " << status
                            << "\n";
    ASSERT_EQ(::chmod(scontrol.c_str(), 0755), 0);
    const ChildResult result = run_child(
        trainer_words(0, with(wrong("steps=1-99,layer=head,pass=forward,kind=bit,element=1"), {"--drain", "run"})),
        {{"PATH", folder.path() + ":" + std::getenv("PATH")}, {"SLURMD_NODENAME", "node7"}});
    EXPECT_EQ(result.status, 87) << result.err;
    EXPECT_THAT(read_text(folder.file("words")), mentions("update|NodeName=node7|State=DRAIN|Reason=trainer screen: "));
    EXPECT_EQ(count(result.err, "exit status 3; drain node7 by hand"), status == 0 ? 0 : 1) << result.err;
  }
}

TEST(ScreenCommand, ScreensTheCoresOfAHostOnceHoweverManyRanksItHas) {
  const ChildResult result = run_script(3, "taskset -p -c " + fmt::format("{}", fmt::join(allowed_cores(), ",")) +
                                               " $$ >/dev/null && exec \"$T\" screen --device cpu --seconds 0");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, mentions(fmt::format("screened {} core", allowed_cores().size())));
}

TEST(ScreenCommand, RefusesOtherFaultsAndMissingGpus) {
  EXPECT_THAT(run_trainer(with(kScreen, {"--rehearse", "kill:rank=0,step=3"})), ends(64, "--rehearse", "wrong:rank="));
  EXPECT_THAT(run_trainer(words_of("screen --device cuda --seconds 0")), ends(65, "--device cpu"));
}

// Layers, each with the first of its steps in a round of 8.
struct Layers {
  int first_step;
  Words names;
};
const Layers kLayers[] = {
    {1, words_of("conv1 pool1 conv2 pool2 dense1 dense2")},
    {3, words_of("stem.conv stem.norm block1.conv1 block1.norm1 block1.conv2 block1.norm2 block2.shortcut block2.conv1 "
                 "block2.act block2.conv2 block2.add pool dropout global head")}};

TEST(ScreenCommand, FindsRandomFaults) {
  int found = 0;
  int harmless = 0;
  const auto wanted = static_cast<int>(number_from_environment("TUTTI_SCREENINGS", 5));
  for (unsigned seed = 1; found < wanted; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t end) { return random() % end; };
    const std::size_t core = below(allowed_cores().size());
    const Layers& layers = kLayers[below(2)];
    const std::string layer = layers.names[below(layers.names.size())];
    const std::string pass = below(2) == 0 ? "forward" : "backward";
    const std::size_t step = static_cast<std::size_t>(layers.first_step) + below(2) + 4 * below(4);
    const bool is_once = below(2) == 0;
    const std::string fault =
        fmt::format("wrong:rank={},{},layer={},pass={},kind={},element={},bit={}", core,
                    is_once ? fmt::format("step={}", step) : fmt::format("steps={}-1000", step), layer, pass,
                    Words{"bit", "scale", "stuck"}[below(3)], below(1'000'000), below(32));
    SCOPED_TRACE(fault);
    const ChildResult result = run_trainer(with(kScreen, {"--rehearse", fault}));
    const std::string word = last_word(result.err, " instead of ");
    // A value of 0 was doubled, or one that is stuck was right.
    const bool changed_nothing = count(result.err, " " + word + " instead of ") > 0;
    if (changed_nothing && (is_once || result.status == 0)) {
      EXPECT_EQ(result.status, 0) << result.out;
      ++harmless;
      continue;
    }
    ++found;
    EXPECT_EQ(result.status, 87) << result.out << result.err;
    EXPECT_THAT(result.out, mentions(fmt::format("core {} on ", allowed_cores()[core]),
                                     fmt::format("the {} pass of {} (", pass, layer)))
        << result.err;
    EXPECT_EQ(count(result.out, " first "), 1) << result.out;
  }
  std::cout << fmt::format("{} found; {} changed no value\n", found, harmless);
}

TEST(ScreenCommand, FindsNothingInManyScreenings) {
  for (std::uint64_t i = 0; i < number_from_environment("TUTTI_SCREENINGS", 2); ++i) {
    const ChildResult result = run_trainer(kScreen);
    ASSERT_EQ(result.status, 0) << i << ": " << result.out << result.err;
  }
}

}  // namespace
}  // namespace tutti::test
