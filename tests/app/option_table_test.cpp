#include "option_table.hpp"

#include "tutti/base/error.hpp"
#include "tutti/train/trainer.hpp"

#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

std::string refusal_of(const std::string& text) {
  try {
    read_config_text(text, "run.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.source(), ErrorSource::usage);
    return error.what();
  }
  return "no error";
}

const Option& row(const std::vector<Option>& options, const std::string& name) {
  return *std::ranges::find(options, name, &Option::name);
}

TEST(OptionTable, NamesEveryOptionOnce) {
  RunConfig config;
  std::set<std::string> names;
  for (const Option& option : run_options(config)) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_FALSE(option.help.empty());
  }
}

// Gives the option another value than it has. Returns false where it can have no other.
bool change(const OptionValue& value) {
  const std::string before = value.read();
  std::vector<std::string> others(value.choices.begin(), value.choices.end());
  if (value.type == ValueType::flag) others = {"true", "false"};
  if (others.empty()) others = {"7", "2", "0.5", "a=2", "flip"};
  const auto write = [&](const std::string& other) {
    try {
      value.write(other);
    } catch (const std::invalid_argument&) {
    } catch (const Error&) {
    }
    return value.read() != before;
  };
  return std::ranges::any_of(others, write);
}

TEST(OptionTable, StoresEveryOptionInItsOwnField) {
  RunConfig config;
  const auto options = run_options(config);
  const auto values = [&] {
    std::vector<std::string> texts;
    for (const Option& option : options) texts.push_back(value_text(option));
    return texts;
  };
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (options[i].name == "rehearse") continue;  // no short word is valid for it
    std::vector<std::string> before = values();
    if (!change(options[i].value)) continue;
    const std::vector<std::string> after = values();
    EXPECT_NE(before[i], after[i]) << options[i].name;
    before[i] = after[i];
    EXPECT_EQ(before, after) << options[i].name;
  }
}

TEST(OptionTable, TakesEachChoiceAndNamesThemAllInARefusal) {
  RunConfig config;
  int options_with_choices = 0;
  for (const Option& option : run_options(config)) {
    if (option.value.choices.empty()) continue;
    const Error error = thrown_by([&] { set_value(option, "no-such-word"); });
    EXPECT_EQ(error.source(), ErrorSource::usage);
    for (const std::string_view word : option.value.choices) {
      set_value(option, std::string(word));
      EXPECT_EQ(option.value.read(), word) << option.name;
      EXPECT_NE(std::string_view(error.what()).find(word), std::string_view::npos) << error.what();
    }
    ++options_with_choices;
  }
  EXPECT_GT(options_with_choices, 10);
}

TEST(OptionTable, ParsesATextOnce) {
  RunConfig config;
  const auto options = run_options(config);
  set_value(row(options, "exchange"), "exact");
  EXPECT_EQ(config.exchange, Exchange::exact);
  set_value(row(options, "exchange"), "auto");
  EXPECT_EQ(config.exchange, std::nullopt);
  set_value(row(options, "part-map"), "3,2");
  EXPECT_EQ(config.trainer.part_map.parts_by_rank, (std::vector{3, 2}));
  set_value(row(options, "no-decay"), "norms-biases");
  EXPECT_TRUE(config.trainer.optimizer.exempts_norms_and_biases);
  EXPECT_THROW(set_value(row(options, "time-limit"), "soon"), Error);
  EXPECT_EQ(config.texts.time_limit, "");
}

TEST(ConfigFile, WrittenAndReadGivesTheSameConfiguration) {
  RunConfig config;
  config.data.train = "a \"quoted\" \\ path\n\x01\x7f of \xC3\xA4";
  config.trainer.learning_rate.base = 1e-5;
  config.trainer.optimizer.momentum = 0;
  config.trainer.optimizer.nesterov = true;
  config.texts.lr_period = "30,60";
  const RunConfig again = read_config_text(config_text(config), "text");
  EXPECT_EQ(config_text(again), config_text(config));
  EXPECT_EQ(again.data.train, config.data.train);
  EXPECT_EQ(again.trainer.learning_rate.base, config.trainer.learning_rate.base);
  EXPECT_FALSE(again.given.contains("resume"));
}

TEST(ConfigFile, IsOverriddenByTheCommandLine) {
  RunConfig config;
  config.trainer.epochs = 7;
  config.given = {"epochs"};
  config = read_config_text("epochs = 3\nlr = 1\n", "run.toml", config);
  EXPECT_EQ(config.trainer.epochs, 7);
  EXPECT_EQ(config.trainer.learning_rate.base, 1);
  EXPECT_TRUE(config.given.contains("lr"));
}

TEST(ConfigFile, NamesFileAndLineOfAMistake) {
  EXPECT_EQ(refusal_of("lr = 1\nbatchsize = 3\n"),
            "run.toml:2: unknown option 'batchsize': did you mean 'batch-size'? See --help");
  EXPECT_EQ(refusal_of("\nepochs = \"ten\"\n"), "run.toml:2: 'epochs' must be an integer");
  EXPECT_EQ(refusal_of("nesterov = 1\n"), "run.toml:1: 'nesterov' must be true or false");
  EXPECT_EQ(refusal_of("data = 1.5\n"), "run.toml:1: 'data' must be a quoted string");
  EXPECT_EQ(refusal_of("lr = 1\nseed = 18_446_744_073_709_551_615 # large\n"),
            "run.toml:2: 'seed' = 18446744073709551615 is out of range");
  EXPECT_EQ(refusal_of("lr = 1e400\n"), "run.toml:1: 'lr' = 1e400 is out of range");
  EXPECT_EQ(refusal_of("lr = +1e-400\n"), "run.toml:1: 'lr' = 1e-400 is out of range");
  EXPECT_EQ(refusal_of("seed = 9223372036854775807\nlr = 0.1\nmomentum = 0.0\n"), "no error");
  EXPECT_EQ(refusal_of("resume = true\n"), "run.toml:1: 'resume' belongs on the command line, not in a file");
  EXPECT_EQ(refusal_of("rehearse = 'kill'\n"), "run.toml:1: 'rehearse' belongs on the command line, not in a file");
  EXPECT_TRUE(refusal_of("lr = 1\nlr = \n").starts_with("run.toml:2: this is not TOML"))
      << refusal_of("lr = 1\nlr = \n");
}

TEST(ConfigFile, NamesFileAndLineOfAValueThatMeansNothing) {
  EXPECT_EQ(refusal_of("lr = 1\nexchange = 'nearly'\n"),
            "run.toml:2: --exchange nearly: must be one of auto, ring, exact, sharded, central");
  EXPECT_EQ(refusal_of("in-flight = 3\n"), "run.toml:1: --in-flight 3: must be an integer from 0 to 2");
}

TEST(ConfigFile, NamesWhatReplacedAnOptionOfAnEarlierVersion) {
  const ScratchFolder folder;
  const std::string path = folder.file("run.toml");
  RunConfig config;
  std::ofstream(path) << "lr = 0.5\ntensorboard = \"\"\n";
  read_config_file(path, config);
  EXPECT_EQ(config.given, std::set<std::string>{"lr"});
  std::ofstream(path) << "tensorboard = \"logs\"\n";
  const Error error = thrown_by([&] { read_config_file(path, config); });
  EXPECT_EQ(error.what(), path +
                              ":1: 'tensorboard' is no longer an option: 'trainer tensorboard RUN' makes "
                              "TensorBoard's files from the run's folder; remove the line");
}

TEST(ConfigFile, ThatIsNestedTooDeepIsRefusedBeforeTheStackOverflows) {
  for (const std::string piece : {"[", "{a = ", "[\n", "[ # ]\n", "[ \"]\",\n"}) {
    std::string text = "seed = 1\ndata = ";
    for (int depth = 0; depth < 200'000; ++depth) text += piece;
    EXPECT_NE(refusal_of(text).find("this is nested too deeply"), std::string::npos) << piece;
  }
  std::string key = "a";
  for (int depth = 0; depth < 200'000; ++depth) key += ".a";
  EXPECT_EQ(refusal_of(key + " = 1\n").substr(0, 27), "run.toml:1: this is nested ");
  EXPECT_EQ(refusal_of("[" + key + "]\n").substr(0, 27), "run.toml:1: this is nested ");
  EXPECT_EQ(refusal_of("# " + std::string(1000, '.') + std::string(1000, '[') + "\ndata = \"" + std::string(60, '[') +
                       "\"\nlr = 0\nlr = 0\n")
                .substr(0, 11),
            "run.toml:4:");
}

TEST(ConfigFile, MayHaveAnyNumberOfBracketsThatAreClosed) {
  std::string list = "[";
  for (int i = 0; i < 1000; ++i) list += "{a = [1]}, # [\n ";
  EXPECT_EQ(refusal_of("data = " + list + "]\n").find("nested"), std::string::npos)
      << refusal_of("data = " + list + "]\n");
  EXPECT_NE(refusal_of("data = " + list + list + std::string(64, '[')).find("nested"), std::string::npos);
  EXPECT_NE(refusal_of("out = \"\"\"]]\"\"\"\ndata = " + list + "]").find("nested"), std::string::npos);
}

TEST(ConfigFile, MayHaveTextsWithAnyDotsAndBrackets) {
  const std::string text = "out = \"" + std::string(1000, '.') + "\\\"" + std::string(1000, '[') + "\"\nnormalize = '" +
                           std::string(1000, '{') + "' # \"a\nlr = 0.5\n";
  const RunConfig config = read_config_text(text, "run.toml");
  EXPECT_EQ(config.output.folder, std::string(1000, '.') + "\"" + std::string(1000, '['));
  EXPECT_EQ(config.trainer.learning_rate.base, 0.5);
  const std::string deep(200'000, '[');
  for (const std::string& hidden : {"data = \"\" " + deep, "data = \"" + deep, "data = '\\'" + deep + "'",
                                    "# \"\ndata = " + deep + "\"", "out = '''\n'\ndata = '''\nout = " + deep + "'",
                                    "out = \"\"\"\n\"\"\"\ndata = " + deep, "data = [\"\"\"\n# \"\"\", " + deep}) {
    EXPECT_NE(refusal_of(hidden).find("this is nested too deeply"), std::string::npos) << hidden.substr(0, 20);
  }
}

TEST(ConfigFile, ThatIsNotUtf8IsRefusedBeforeItIsParsed) {
  for (const std::string bytes :
       {"\xFB", "\xC3", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80"}) {
    EXPECT_TRUE(
        refusal_of("lr = 1\nout = 'ada" + bytes + "w'\n").starts_with("run.toml:2: this line is not valid UTF-8"))
        << bytes;
  }
  EXPECT_TRUE(refusal_of("out = 'd\xC3\xA9j\xC3\xA0 \xE2\x82\xAC \xF0\x9F\x8E\xBB'\nlr = true\n")
                  .starts_with("run.toml:2: 'lr'"));
}

TEST(Resume, TakesWhatIsFixedFromTheCheckpointAndTheRestFromTheUser) {
  RunConfig before;
  before.trainer.batch_size = 64;
  before.trainer.num_parts = 8;
  before.trainer.epochs = 2;
  RunConfig requested;
  requested.trainer.epochs = 9;
  requested.given = {"epochs"};
  const RunConfig merged = merge_for_resume(requested, config_text(before), "step-1.h5");
  EXPECT_EQ(merged.trainer.batch_size, 64);
  EXPECT_EQ(merged.trainer.num_parts, 8);
  EXPECT_EQ(merged.trainer.epochs, 9);
}

TEST(Resume, KeepsThePlannedEndUnlessAnotherIsGiven) {
  RunConfig before;
  before.trainer.epochs = 8;
  before.texts.checkpoint_every = "2epochs";
  before.output.folder = "old";
  RunConfig requested;
  requested.output.folder = "moved";
  requested.given = {"out"};
  const RunConfig merged = merge_for_resume(requested, config_text(before), "step-1.h5");
  EXPECT_EQ(merged.trainer.epochs, 8);
  EXPECT_EQ(merged.texts.checkpoint_every, "2epochs");
  EXPECT_EQ(merged.output.folder, "moved");
}

TEST(Resume, TakesDefaultsForOptionsThatAnEarlierVersionDidNotHave) {
  const RunConfig merged = merge_for_resume({}, "optimizer = 'adamw'\nlr = 0.01\n", "step-1.h5");
  EXPECT_EQ(merged.trainer.optimizer.beta1, 0.9);
  EXPECT_EQ(merged.trainer.optimizer.beta2, 0.999);
  EXPECT_EQ(merged.trainer.optimizer.epsilon, 1e-8);
  EXPECT_EQ(merged.trainer.learning_rate.min, 0);
}

TEST(Resume, OfARunThatHealedDivergencesStopsAtThem) {
  EXPECT_EQ(merge_for_resume({}, "on-divergence = 'heal'\n", "step-1.h5").on_divergence, OnDivergence::stop);
}

TEST(Resume, IgnoresRemovedOptionsOfEarlierVersions) {
  EXPECT_EQ(
      merge_for_resume({}, "tensorboard = \"logs\"\nmlperf-log = \"\"\nlr = 0.25\n", "ckpt").trainer.learning_rate.base,
      0.25);
}

TEST(Resume, OfARunFromBeforeScheduleEpochsEndsItsCosineScheduleWithItsSteps) {
  RunConfig before;
  before.trainer.learning_rate.schedule = Schedule::cosine;
  before.trainer.steps = 400;
  const std::string newer = config_text(before);
  std::string older = newer;
  const std::size_t line = older.find("schedule-epochs = 0\n");
  ASSERT_NE(line, std::string::npos) << older;
  older.erase(line, older.find('\n', line) + 1 - line);
  const auto schedule_epochs = [](const std::set<std::string>& given, const std::string& checkpoint) {
    RunConfig requested;
    requested.trainer.schedule_epochs = 9;
    requested.given = given;
    return merge_for_resume(requested, checkpoint, "step-1.h5").trainer.schedule_epochs;
  };
  EXPECT_EQ(schedule_epochs({}, newer), 0);
  EXPECT_EQ(schedule_epochs({}, older), kScheduleOfInvocation);
  EXPECT_EQ(schedule_epochs({"steps"}, older), kScheduleOfInvocation);
  EXPECT_EQ(schedule_epochs({"schedule-epochs"}, older), 9);
  before.trainer.steps = 0;
  older = config_text(before);
  older.erase(older.find("schedule-epochs"), 20);
  EXPECT_EQ(schedule_epochs({"steps"}, older), 0) << "it was on the schedule of its epochs";
}

TEST(Resume, TakesImagesAsTheyAreStoredWhereTheRunStartedSo) {
  EXPECT_FALSE(merge_for_resume({}, "lr = 0.01\n", "step-1.h5").data.applies_exif);
  EXPECT_TRUE(merge_for_resume({}, config_text({}), "step-1.h5").data.applies_exif);
}

// The option came with the split by classes.
TEST(Resume, KeepsTheSplitThatTheRunStartedWith) {
  EXPECT_EQ(merge_for_resume({}, "validation-ratio = 0.1\n", "step-1.h5").data.split, Split::random);
  EXPECT_EQ(merge_for_resume({}, config_text({}), "step-1.h5").data.split, Split::stratified);
}

TEST(Resume, Keeps64BitsOfExactSumsWhereTheRunStartedSo) {
  const auto wire_after = [](const std::string& stored) {
    return merge_for_resume({}, stored, "step-1.h5").trainer.exchange.wire;
  };
  EXPECT_EQ(wire_after("exchange = 'exact'\n"), Wire::int64);
  EXPECT_EQ(wire_after("exchange = 'exact'\nwire = 'fp32'\n"), Wire::int64);
  EXPECT_EQ(wire_after("exchange = 'exact'\nwire = 'int32'\n"), Wire::int32);
  EXPECT_EQ(wire_after("exchange = 'ring'\nwire = 'fp32'\n"), Wire::fp32);
}

TEST(Resume, KeepsThePrecisionButLetsRunsInTf32MoveToCpus) {
  const auto merged = [](const std::set<std::string>& given, std::optional<Precision> asked, const char* stored) {
    RunConfig requested;
    requested.processor.precision = asked;
    requested.given = given;
    return merge_for_resume(requested, stored, "step-1.h5").processor.precision;
  };
  EXPECT_EQ(merged({}, std::nullopt, "precision = \"fp32\"\n"), Precision::fp32);
  EXPECT_EQ(merged({"precision"}, std::nullopt, "precision = \"bf16\"\n"), Precision::bf16);
  EXPECT_EQ(merged({}, std::nullopt, "lr = 0.01\n"), Precision::fp32) << "of a version without the option";
  EXPECT_EQ(merged({}, std::nullopt, "precision = \"tf32\"\n"), std::nullopt);
  EXPECT_EQ(merged({"precision"}, Precision::tf32, "precision = \"tf32\"\n"), Precision::tf32);
  EXPECT_THROW(merged({"precision"}, Precision::fp32, "precision = \"tf32\"\n"), Error);
}

TEST(Resume, AllowsAnotherPathOfTheData) {
  RunConfig before;
  before.data.train = "/old/place";
  RunConfig requested;
  requested.data.train = "/new/place";
  EXPECT_EQ(merge_for_resume(requested, config_text(before), "step-1.h5").data.train, "/old/place");
  requested.given = {"data"};
  EXPECT_EQ(merge_for_resume(requested, config_text(before), "step-1.h5").data.train, "/new/place");
}

TEST(Resume, TakesAutoAsTheChoiceOfTheRun) {
  RunConfig before;
  before.recipe.normalize = "0.5/0.25";
  before.exchange = Exchange::ring;
  RunConfig requested;
  requested.recipe.normalize = "auto";
  requested.given = {"normalize", "exchange"};
  const RunConfig merged = merge_for_resume(requested, config_text(before), "step-1.h5");
  EXPECT_EQ(merged.recipe.normalize, "0.5/0.25");
  EXPECT_EQ(merged.exchange, Exchange::ring);
  before.recipe.normalize = "none";
  EXPECT_THROW(merge_for_resume(requested, config_text(before), "step-1.h5"), Error);
}

}  // namespace
}  // namespace tutti
