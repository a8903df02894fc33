#include "command_line.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tutti {
namespace {

Invocation parse(std::vector<const char*> words) {
  words.insert(words.begin(), "trainer");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

std::string refusal(const std::vector<const char*>& words) {
  try {
    parse(words);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), ExitStatus::usage);
    return error.what();
  }
  return "no error";
}

TEST(CommandLine, TrainsWhenNoCommandIsGiven) {
  EXPECT_EQ(parse({}).command_name, "train");
  EXPECT_EQ(parse({"--epochs", "3"}).run.trainer.epochs, 3);
  EXPECT_EQ(parse({"train", "--epochs=3"}).run.trainer.epochs, 3);
}

TEST(CommandLine, KnowsWhatTheUserChose) {
  const Invocation invocation = parse({"--lr", "0.05", "--nesterov"});
  EXPECT_EQ(invocation.run.given, (std::set<std::string>{"lr", "nesterov"}));
}

TEST(CommandLine, SuggestsACorrectionForAMisspeltWord) {
  EXPECT_EQ(refusal({"--modle", "lenet"}), "unknown option '--modle': did you mean '--model'? See trainer --help");
  EXPECT_EQ(refusal({"--amp"}), "unknown option '--amp': --precision bf16 is mixed precision");
  EXPECT_EQ(refusal({"-epochs=5"}), "unknown option '-epochs': did you mean '--epochs'? See trainer --help");
  EXPECT_EQ(refusal({"eval", "--chekpoint", "run"}),
            "unknown option '--chekpoint': did you mean '--checkpoint'? See trainer eval --help");
  EXPECT_EQ(refusal({"eval", "--checkpoint", "run", "--epochs", "5"}),
            "unknown option '--epochs': see trainer eval --help");
  EXPECT_EQ(refusal({"--lr", "1", "lenet"}), "unexpected argument 'lenet': see trainer --help");
  EXPECT_EQ(refusal({"--tensorboard", "logs"}),
            "unknown option '--tensorboard': 'trainer tensorboard RUN' makes TensorBoard's files from the "
            "run's folder");
  EXPECT_EQ(refusal({"bench", "layers", "--json", "-"}).substr(0, 32), "unknown command 'bench layers': ");
  EXPECT_EQ(refusal({"evla"}), "unknown command 'evla': did you mean 'eval'? See trainer --help");
  EXPECT_EQ(refusal({"data", "ifno"}), "unknown command 'data ifno': did you mean 'data info'? See trainer --help");
  EXPECT_EQ(refusal({"data"}),
            "'data' needs a subcommand, one of data convert, data info, data show, data fetch; see trainer --help");
  EXPECT_EQ(parse({"help"}).command, nullptr);
  EXPECT_EQ(refusal({"frobnicate"}), "unknown command 'frobnicate': see trainer --help");
}

TEST(CommandLine, NamesTheAllowedValuesAndOperands) {
  EXPECT_EQ(refusal({"--epochs", "five"}), "--epochs five: must be an integer from 1 to 1000000");
  EXPECT_EQ(refusal({"--epochs", "1.5"}), "--epochs 1.5: must be an integer from 1 to 1000000");
  EXPECT_EQ(refusal({"--resume=maybe"}), "--resume maybe: must be true or false, or have no value");
  EXPECT_EQ(refusal({"data", "info", "--", "a", "b"}), "unexpected argument 'b': see trainer data info --help");
  EXPECT_EQ(refusal({"eval", "runs/a"}),
            "unexpected argument 'runs/a': did you mean --checkpoint runs/a? See trainer eval --help");
  EXPECT_EQ(refusal({""}), "unexpected argument '': see trainer --help");
  EXPECT_EQ(refusal({"--lr", "1", ""}), "unexpected argument '': see trainer --help");
  EXPECT_EQ(refusal({"eval", ""}), "unexpected argument '': see trainer eval --help");
  EXPECT_EQ(refusal({"--lr", "fast"}), "--lr fast: must be a number");
  EXPECT_EQ(refusal({"data", "convert", "photos"}),
            "target is required: trainer data convert source target; see trainer data convert --help");
}

TEST(CommandLine, TakesNumbersAsTheyAreWrittenOrRefusesThem) {
  EXPECT_EQ(parse({"--epochs", "010"}).run.trainer.epochs, 10);
  EXPECT_EQ(parse({"--epochs", "+3", "--lr=+1e-3"}).run.trainer.epochs, 3);
  EXPECT_EQ(parse({"--seed", "-9223372036854775808"}).run.data.seed, std::uint64_t{1} << 63);
  EXPECT_EQ(refusal({"--seed", "18446744073709551615"}),
            "--seed 18446744073709551615: must be an integer from -2^63 to 2^63 - 1");
  for (const char* rate : {"1e400", "-1e400", "1e-400"}) {
    EXPECT_EQ(refusal({"--lr", rate}), fmt::format("--lr {}: must be 0, or a number from 2.3e-308 to 1.7e308", rate));
  }
  for (const char* epochs : {"0x10", "0b1", "1e3", "--5", "+-5", ""}) {
    EXPECT_NE(refusal({(std::string("--epochs=") + epochs).c_str()}), "no error") << epochs;
  }
  EXPECT_EQ(refusal({"--lr", "0x1p-3"}), "--lr 0x1p-3: must be a number");
  EXPECT_EQ(refusal({"bench", "input", "--seconds", "1e400"}).substr(0, 9), "--seconds");
  EXPECT_EQ(parse({"bench", "step", "--timed-steps", "010"}).steps.timed, 10);
}

TEST(CommandLine, RefusesWordsAndNumbersThatMeanNothing) {
  const std::vector<std::vector<const char*>> mistakes{{"--device", "tpu"},         {"--precision", "fp8"},
                                                       {"--comm", "carrier"},       {"--exchange", "nearly"},
                                                       {"--last-batch", "drop"},    {"--shuffle", "yes"},
                                                       {"--augment", "crop"},       {"--image-size", "-1"},
                                                       {"--schedule", "poly"},      {"--batch-size", "0"},
                                                       {"--epochs", "0"},           {"--steps", "-1"},
                                                       {"--schedule-epochs", "-2"}, {"--parts", "-1"},
                                                       {"--part-map", ""},          {"--part-map", "3,"},
                                                       {"--part-map", "3,0"},       {"--part-map", "3;3"},
                                                       {"--in-flight", "3"},        {"--bucket-mib", "-1"},
                                                       {"--lr-period", "soon"},     {"--checkpoint-every", "1hour"},
                                                       {"--time-limit", "soon"},    {"--rehearse", "trip:rank=1"},
                                                       {"--progress", "sometimes"}, {"--init", "zeros"},
                                                       {"--optimizer", "adam"},     {"--no-decay", "biases"},
                                                       {"--label-smoothing", "1"},  {"--label-smoothing", "nan"},
                                                       {"--keep-checkpoints", "1"}, {"--keep-checkpoints", "-1"}};
  for (const auto& words : mistakes) {
    EXPECT_EQ(refusal(words).find(words[0]), 0U) << words[0] << " " << words[1] << ": " << refusal(words);
  }
  EXPECT_EQ(refusal({"--exchange", "nearly"}), "--exchange nearly: must be one of auto, ring, exact, sharded, central");
  EXPECT_EQ(refusal({"--epochs", "0"}), "--epochs 0: must be an integer from 1 to 1000000");
  EXPECT_EQ(refusal({"--label-smoothing", "1"}), "--label-smoothing 1: must be at least 0 and below 1");
  EXPECT_EQ(refusal({"--on-divergence", "heal"}).substr(0, 52), "--on-divergence heal no longer exists: leave it out.");
  EXPECT_EQ(parse({"--keep-checkpoints", "0"}).run.output.keep_checkpoints, 0);
}

TEST(CommandLine, LetsCheckListAllInvalidValues) {
  const Invocation check = parse({"check", "--epochs", "many", "--exchange", "nearly", "--lr", "0.5"});
  ASSERT_EQ(check.problems.size(), 2U);
  EXPECT_EQ(check.problems[0], "--epochs many: must be an integer from 1 to 1000000");
  EXPECT_EQ(check.problems[1], "--exchange nearly: must be one of auto, ring, exact, sharded, central");
  EXPECT_EQ(check.run.trainer.learning_rate.base, 0.5);
}

TEST(CommandLine, SplitsTheWordsAsUsersExpect) {
  EXPECT_EQ(parse({"--lr", "0.1", "--lr=0.2"}).run.trainer.learning_rate.base, 0.2) << "the last counts";
  EXPECT_EQ(parse({"--seed", "-3"}).run.trainer.seed, static_cast<std::uint64_t>(-3));
  EXPECT_FALSE(parse({"--nesterov", "--nesterov=off"}).run.trainer.optimizer.nesterov);
  EXPECT_EQ(parse({"--data="}).run.data.train, "");
  EXPECT_EQ(refusal({"--out", "--resume"}), "--out needs a value; see trainer --help");
  EXPECT_EQ(refusal({"--out"}), "--out needs a value; see trainer --help");
  EXPECT_EQ(parse({"--out=--resume"}).run.output.folder, "--resume");
  const Invocation predict = parse({"predict", "a.png", "--checkpoint", "c", "b.png", "--top", "2", "--", "--c.png"});
  EXPECT_EQ(predict.predict.images, (std::vector<std::string>{"a.png", "b.png", "--c.png"}));
  EXPECT_EQ(parse({"predict", "--checkpoint", "c", "--csv", "-"}).predict.csv, "-");
  EXPECT_EQ(parse({"--bogus", "-h"}).command, nullptr) << "the help helps";
  EXPECT_EQ(parse({"eval", "--help"}).command, nullptr);
}

TEST(CommandLine, RefusesWordsThatNoRecordCouldHold) {
  EXPECT_EQ(refusal({"--out", "caf\xE9"}), "'caf\\xe9' is not valid UTF-8: rename the file or folder");
  EXPECT_EQ(parse({"--out", "caf\xC3\xA9"}).run.output.folder, "caf\xC3\xA9");
}

TEST(CommandLine, DistinguishesTheBenchmarks) {
  EXPECT_EQ(parse({"bench", "allreduce", "--max-bytes", "1024"}).allreduce.max_bytes, 1024);
  const Invocation input = parse({"bench", "input", "--augment", "crop-flip", "--seconds", "0.5"});
  EXPECT_EQ(input.command_name, "bench input");
  EXPECT_EQ(input.run.recipe.augment.crop, Crop::crop_flip);
  EXPECT_EQ(input.input_seconds, 0.5);
  const Invocation scaling = parse({"bench", "scaling", "--mode", "weak", "--model", "mlp", "--ranks", "1,2"});
  EXPECT_EQ(scaling.command_name, "bench scaling");
  EXPECT_EQ(scaling.run.model, "mlp");
  EXPECT_EQ(scaling.ranks, "1,2");
  const Invocation step = parse({"bench", "step", "--timed-steps", "3", "--parts", "2", "--batch-size", "8"});
  EXPECT_EQ(step.command_name, "bench step");
  EXPECT_EQ(step.steps.timed, 3);
  EXPECT_EQ(step.run.trainer.num_parts, 2);
  EXPECT_EQ(refusal({"bench", "step", "--init-from", "run"}).substr(0, 14), "unknown option");
  EXPECT_EQ(refusal({"bench", "input", "--lr", "0.1"}).substr(0, 14), "unknown option");
  EXPECT_EQ(refusal({"bench", "step", "--ranks", "2"}).substr(0, 14), "unknown option");
}

TEST(CommandLine, ReadsWhatToCompare) {
  const Invocation diff = parse({"diff", "runs/a", "runs/b"});
  EXPECT_EQ(diff.command_name, "diff");
  EXPECT_EQ(diff.compared.a, "runs/a");
  EXPECT_EQ(diff.compared.b, "runs/b");
  EXPECT_NE(refusal({"diff", "runs/a"}).find("b is required"), std::string::npos);
}

TEST(CommandLine, ReadsWhatToEvaluate) {
  const Invocation eval =
      parse({"eval", "--checkpoint", "a.h5", "--data", "glyphs", "--on", "train", "--json", "b.json"});
  EXPECT_EQ(eval.command_name, "eval");
  EXPECT_EQ(eval.checkpoint, "a.h5");
  EXPECT_EQ(eval.eval.on, EvalSet::train);
  EXPECT_EQ(eval.json, "b.json");
  EXPECT_EQ(eval.run.given, std::set<std::string>{"data"});
}

TEST(CommandLine, AdamwHasNoMomentumUnlessItIsGiven) {
  EXPECT_EQ(parse({"--optimizer", "adamw"}).run.trainer.optimizer.momentum, 0);
  EXPECT_EQ(parse({"--optimizer", "adamw", "--momentum", "0.9"}).run.trainer.optimizer.momentum, 0.9);
  EXPECT_EQ(parse({"--optimizer", "lars"}).run.trainer.optimizer.momentum, 0.9);
}

TEST(CommandLine, ReadsTheCommandsOfData) {
  const Invocation convert =
      parse({"data", "convert", "glyphs", "g.h5", "--validation-ratio", "0.2", "--image-size=16"});
  EXPECT_EQ(convert.command_name, "data convert");
  EXPECT_EQ(convert.run.data.train, "glyphs");
  EXPECT_EQ(convert.target, "g.h5");
  EXPECT_EQ(convert.run.data.validation_ratio, 0.2);
  EXPECT_EQ(convert.run.recipe.image_size, 16);
  EXPECT_EQ(parse({"data", "info", "glyphs", "--test-data", "d"}).run.data.test, "d");
  const Invocation fetch = parse({"data", "fetch", "mnist", "--to", "d"});
  EXPECT_EQ(fetch.command, nullptr);
  EXPECT_EQ(fetch.companion.filename(), "trainer-data-fetch");
  EXPECT_EQ(fetch.arguments, (std::vector<std::string>{"mnist", "--to", "d"}));
  const Invocation show = parse({"data", "show", "glyphs", "s.png", "--count=8", "--beside", "--augment", "crop-flip"});
  EXPECT_EQ(show.command_name, "data show");
  EXPECT_EQ(show.run.data.train + show.target, "glyphss.png");
  EXPECT_EQ(show.run.recipe.augment.crop, Crop::crop_flip);
  EXPECT_EQ(show.show.count, 8);
  EXPECT_TRUE(show.show.beside);
  EXPECT_NE(refusal({"data", "show", "glyphs", "s.png", "--epoch", "0"}).find("--epoch"), std::string::npos);
  const std::string data = parse({"data", "--help"}).text;
  EXPECT_NE(data.find("data convert"), std::string::npos);
  EXPECT_EQ(data.find("bench"), std::string::npos) << data;
  EXPECT_NE(refusal({"data", "convert", "glyphs"}).find("target"), std::string::npos);
  EXPECT_NE(refusal({"data", "info"}).find("source"), std::string::npos);
  EXPECT_NE(refusal({"data", "info", "glyphs", "--lr", "1"}).find("--lr"), std::string::npos);
}

TEST(CommandLine, RefusesInOneLineThatNamesTheHelp) {
  for (const auto& words : std::vector<std::vector<const char*>>{{"--epoch", "3"},
                                                                 {"--epochs"},
                                                                 {"trian"},
                                                                 {"bench"},
                                                                 {"bench", "everything"},
                                                                 {"eval"},
                                                                 {"eval", "--checkpoint", "a", "--epochs", "3"},
                                                                 {"train", "extra"}}) {
    const std::string line = refusal(words);
    EXPECT_TRUE(line.find("ee trainer") != std::string::npos && line.ends_with("--help")) << line;
    EXPECT_EQ(std::ranges::count(line, '\n'), 0) << line;
  }
  EXPECT_NE(refusal({"trian"}).find("'trian'"), std::string::npos);
  EXPECT_TRUE(refusal({"data", "info"}).ends_with("see trainer data info --help")) << refusal({"data", "info"});
}

TEST(CommandLine, HelpGroupsTheOptionsAndEveryGroupFitsAScreen) {
  const std::string help = parse({"--help"}).text;
  std::size_t lines = 0;
  for (const char* group :
       {"Data:", "Network:", "Training:", "Ranks and devices:", "Checkpoints and output:", "Logging:"}) {
    EXPECT_NE(help.find(group), std::string::npos) << group;
  }
  for (std::size_t begin = 0; begin < help.size();) {
    const std::size_t end = std::min(help.find('\n', begin), help.size());
    lines = end == begin ? 0 : lines + 1;
    EXPECT_LE(lines, 40u) << help.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(CommandLine, HelpOfACommandIsAboutThatCommand) {
  const std::string help = parse({"eval", "--help"}).text;
  EXPECT_TRUE(help.starts_with("evaluate a checkpoint on a data set\nUsage: trainer eval [OPTIONS]")) << help;
  const std::size_t data = help.find("--data TEXT");
  ASSERT_NE(data, std::string::npos) << help;
  EXPECT_LT(help.find("=the checkpoint's", data), help.find('\n', data)) << help;
  EXPECT_EQ(help.find("data convert"), std::string::npos) << help;
  EXPECT_EQ(parse({"data", "info", "glyphs", "--help"}).text.find("--image-size"), std::string::npos);
}

TEST(CommandLine, VersionNamesTheLibraries) {
  const std::string text = parse({"--version"}).text;
  EXPECT_NE(text.find("HDF5"), std::string::npos);
}

}  // namespace
}  // namespace tutti
