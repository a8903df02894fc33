#include "option_choices.hpp"

#include "tutti/base/error.hpp"

#include "option_table.hpp"
#include "run_config.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>

namespace tutti {
namespace {

// Why the word is refused as this option's value; empty: it is taken.
std::string refusal(const std::string& name, const std::string& word) {
  RunConfig config;
  for (const RunOption& option : run_options(config)) {
    if (option.name == name) *std::get<std::string*>(option.target) = word;
  }
  fit_defaults(config, {name});
  try {
    refuse_unknown_words(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OptionChoices, AreWhatIsTakenAndWhatARefusalNames) {
  // They have rules of their own.
  const std::set<std::string> free{"part-map", "rehearse", "checkpoint-every", "time-limit", "lr-period"};
  RunConfig config;
  int options_with_choices = 0;
  for (const RunOption& option : run_options(config)) {
    if (!std::holds_alternative<std::string*>(option.target) || free.contains(option.name)) continue;
    const std::string refused = refusal(option.name, "no-such-word");
    EXPECT_EQ(refused.empty(), choices_of(option.name).empty()) << option.name << ": " << refused;
    for (const std::string_view word : choices_of(option.name)) {
      EXPECT_EQ(refusal(option.name, std::string(word)), "") << option.name;
      EXPECT_NE(refused.find(word), std::string::npos) << option.name << ": " << refused;
    }
    options_with_choices += choices_of(option.name).empty() ? 0 : 1;
  }
  EXPECT_GT(options_with_choices, 10);
}

TEST(OptionChoices, MayBeOthersInOneCommand) {
  EXPECT_EQ(choices_of("on", "eval").size(), 3u);
  EXPECT_EQ(choices_of("on", "predict").size(), 3u);
  EXPECT_EQ(choices_of("optimizer", "predict").size(), choices_of("optimizer").size());
}

}  // namespace
}  // namespace tutti
