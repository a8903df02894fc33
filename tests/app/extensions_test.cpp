#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"

#include "assemble.hpp"
#include "command_line.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace tutti {
namespace {

// A data set of one image in memory.
DataPair open_one() {
  static constexpr std::array<std::uint8_t, 4> kImage{1, 2, 3, 4};
  static constexpr std::array<std::int32_t, 1> kLabel{0};
  DatasetInfo info{.name = "one", .image = {1, 2, 2}, .classes = 2, .class_names = {}, .samples = 1};
  return {std::make_unique<MemoryDataset>(info, kImage, kLabel), nullptr, {}};
}

const NetworkSpec kLenet{.name = "lenet", .layers = {{"head", LinearSpec{.units = kUnitsFromClasses}}}};
const Extensions kCustom{.networks = {kLenet}, .data = {{"one", open_one}, {"none", [] { return DataPair{}; }}}};

RunConfig config_of(std::vector<const char*> words) {
  words.insert(words.begin(), "mine");
  return parse_command_line(static_cast<int>(words.size()), words.data(), &kCustom).run;
}

TEST(Extensions, AreTheDefaultsOfTheirProgram) {
  const RunConfig config = config_of({});
  EXPECT_EQ(choose_model(config), kLenet);
  ASSERT_NE(find_custom_data(config), nullptr);
  EXPECT_EQ(find_custom_data(config)->name, "one");
  EXPECT_EQ(open_custom(*find_custom_data(config)).train->info().samples, 1);
  EXPECT_EQ(find_custom_data(config_of({"--data", "glyphs"})), nullptr);
  EXPECT_EQ(choose_model(config_of({"--model", "mlp"})).name, "mlp");
  EXPECT_GT(choose_model(RunConfig{}).layers.size(), 1u) << "the built-in lenet";
}

TEST(Extensions, AreNamedInHelp) {
  std::vector<const char*> words{"mine", "--help"};
  const std::string help = parse_command_line(2, words.data(), &kCustom).text;
  EXPECT_THAT(help, mentions("=one"));
}

TEST(Extensions, RefuseOptionsForDataSetsFromFiles) {
  EXPECT_STREQ(thrown_by([] {
                 find_custom_data(config_of({"--validation-ratio", "0.1"}));
               }).what(),
               "--validation-ratio is for data that are read from files, and --data one is an extension of this "
               "program, with its own test set or none: leave the option out");
  const Error error = thrown_by([] { find_custom_data(config_of({"--test-data", "x"})); });
  EXPECT_TRUE(std::string(error.what()).starts_with("--test-data is for")) << error.what();
}

TEST(Extensions, RefuseADataSetWithoutSamples) {
  EXPECT_STREQ(thrown_by([] {
                 open_custom(*find_custom_data(config_of({"--data", "none"})));
               }).what(),
               "the data set 'none' of this program holds no training samples: open() must give some");
}

// A data set of one image without a label.
DataPair open_unlabelled() {
  static constexpr std::array<std::uint8_t, 4> kImage{1, 2, 3, 4};
  static constexpr std::array<std::int32_t, 1> kLabel{0};
  DatasetInfo info{.name = "unknown", .image = {1, 2, 2}, .classes = 2, .samples = 1, .labelled = false};
  return {std::make_unique<MemoryDataset>(info, kImage, kLabel), nullptr, {}};
}

TEST(Extensions, RefuseADataSetWithoutLabelsUnlessNoneAreNeeded) {
  const CustomData data{"unknown", open_unlabelled};
  EXPECT_EQ(thrown_by([&] { open_custom(data); }).what(),
            "the data set 'unknown' of this program has no labels: " + program_call() + " predict labels its images");
  EXPECT_EQ(open_custom(data, true).train->info().samples, 1);
}

}  // namespace
}  // namespace tutti
