#include "data/written_sets.hpp"
#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

// A run of about a second.
Words short_run(const Words& more = {}) {
  return with(words_of("--data synthetic:512x1x12x12:4 --model mlp --epochs 2 --batch-size 64"), more);
}

TEST(Program, TrainsWithoutALauncher) {
  const ChildResult result = run_trainer(short_run());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("epoch 1/2, loss ")) << result.out;
  EXPECT_EQ(count(result.out, "\n"), 2) << result.out;
  EXPECT_THAT(result.err, mentions("no launcher"));
}

TEST(Program, TrainsOnOneAndFiveRanks) {
  for (const int ranks : {1, 5}) {
    const ChildResult result = run_trainer(ranks, short_run());
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(count(result.out, "epoch "), 2) << result.out;
  }
}

TEST(Program, PrintsTheSameAtEqualRankCounts) {
  const std::string once = without_times(run_trainer(3, short_run()).out);
  EXPECT_EQ(count(once, "epoch"), 2);
  EXPECT_EQ(without_times(run_trainer(3, short_run()).out), once);
}

TEST(Program, ComputesTheSameBitsHoweverBatchesArePrepared) {
  const auto run = [](const char* in_flight) {
    return without_times(
        run_trainer(2, short_run({"--in-flight", in_flight, "--augment", "crop-flip", "--normalize", "auto"})).out);
  };
  const std::string ahead = run("2");
  EXPECT_EQ(count(ahead, "epoch "), 2);
  EXPECT_EQ(run("0"), ahead);
}

TEST(Program, GivesTheNetworkImagesOfTheRequestedSize) {
  EXPECT_THAT(run_trainer(2, short_run({"--image-size", "20", "--augment", "resized-crop"})),
              ends(0, fmt::format("{} parameters", 20 * 20 * 256 + 256 + 256 * 4 + 4)));
}

TEST(Program, HoldsOutAShareOfTheTrainingSet) {
  EXPECT_THAT(run_trainer(2, short_run({"--validation-ratio", "0.25"})), ends(0, "384 training and 128 test images"));
}

TEST(Program, PrintsHelpAndVersionOnceAndEndsWell) {
  for (const char* word : {"--help", "--version"}) {
    const ChildResult result = run_trainer(3, {word});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(count(result.out, word == std::string("--help") ? "Usage" : "HDF5"), 1) << result.out;
  }
}

TEST(Program, DryRunPrintsWhatCanBeRunAgain) {
  const ScratchFolder folder;
  const ChildResult printed = run_trainer(2, short_run({"--dry-run"}));
  EXPECT_THAT(printed, ends(0));
  EXPECT_THAT(printed.out, mentions("parts = 2\n", "precision = \"fp32\"\n"));
  const std::string path = folder.path() + "/run.toml";
  ASSERT_THAT(run_child({"sh", "-c", "printf '%s' \"$TEXT\" > " + path}, {{"TEXT", printed.out}}), ends(0));
  EXPECT_EQ(run_trainer(2, {"--config", path, "--dry-run"}).out, printed.out);
}

struct Refusal {
  Words words;
  int status;
  std::string reason;
  int ranks;  // 0: without a launcher
};

TEST(Program, RefusesMistakesOnceWithTheirStatus) {
  const std::vector<Refusal> refusals{
      {{"--bach-size", "3"}, 64, "did you mean '--batch-size'? See trainer --help", 3},
      {{"--last-batch", "drop"}, 64, "one of keep, discard, rollover", 0},
      {{"--model", "lenat"}, 64, "no model is called 'lenat'", 0},
      {{"--parts", "2", "--exchange", "ring"}, 64, "3 ranks cannot share 2 parts", 3},
      {{"--parts", "12", "--part-map", "auto", "--exchange", "ring"}, 64, "add --exchange exact", 0},
      {{"--parts", "8", "--part-map", "4,4", "--exchange", "ring"}, 64, "--part-map 4,4 assigns 8 parts to 2 ranks", 3},
      {{"--exchange", "nearly"}, 64, "must be one of auto, ring, exact, sharded, central", 0},
      {{"--shard-optimizer"}, 64, "--shard-optimizer cannot be used with --exchange ring", 3},
      {{"--wire", "bf16", "--parts", "2"}, 64, "--wire bf16 is for --exchange ring, and not for exact: leave", 3},
      {{"--wire", "int32"}, 64, "--wire int32 is for --exchange exact, and not for ring: leave --wire out, or add", 3},
      {{"--exchange", "central", "--shard-optimizer"}, 64, "rank 0 updates all weights: use --exchange exact", 0},
      {{"--augment", "crop"}, 64, "--augment crop: give none, or some of these", 0},
      {{"--normalize", "0.5"}, 64, "give none, auto or M/S", 0},
      {{"--validation-ratio", "1"}, 64, "--validation-ratio 1", 0},
      {{"--resume"}, 64, "--resume needs --out", 0},
      {{"--dry-run", "--momentum", "7"}, 64, "--momentum 7", 0},
      {{"--optimizer", "adamw", "--momentum", "0.9"}, 64, "its own moments", 0},
      {{"--new-head"}, 64, "add --init-from", 0},
      {{"--optimizer", "lars", "--nesterov"}, 64, "--nesterov belongs to sgd", 0},
      {{"--precision", "tf32"}, 64, "give fp32", 0},
      {{"eval", "--checkpoint", "/no/such.h5"}, 66, "/no/such.h5", 3},
      {{"--config", "/tmp"}, 64, "--config /tmp", 0},
      {{"--device", "cuda"}, 64, "choose --device cpu", 0},
      {{"--data", "no-such-data"}, 74, "no-such-data", 3},
      {{"--data", "synthetic:64x1x6x6:3", "--model", "lenet"}, 65, "layer conv2", 3},
      {{"--out", "/proc/none"}, 73, "/proc/none", 3},
  };
  for (const Refusal& refusal : refusals) {
    const ChildResult result = run_trainer(refusal.ranks, refusal.words);
    EXPECT_EQ(result.status, refusal.status) << refusal.reason << "\n" << result.err;
    EXPECT_EQ(count(result.err, "trainer: "), 1) << result.err;
    EXPECT_THAT(result.err, mentions(refusal.reason));
    EXPECT_EQ(result.out, "");
  }
}

// A job whose last rank has other options than the others. A shell starts it, since mpirun of Open MPI 5.0.7 crashes
// when two programs are separated by a colon.
ChildResult run_unlike(int ranks, const Words& options, const Words& of_last) {
  return run_script(ranks, fmt::format("[ $RANK -lt {} ] || exec \"$T\" {}; exec \"$T\" {}", ranks - 1,
                                       fmt::join(of_last, " "), fmt::join(options, " ")));
}

TEST(Program, NamesTheOneRankThatWasGivenOtherOptions) {
  const Words options{"--data", "synthetic:64x1x8x8:2", "--model", "linear"};
  const ChildResult lost = run_unlike(3, options, {"--data", "synthetic:64x1x8x8:2", "--model", "no/such/model"});
  EXPECT_EQ(lost.status, 74) << lost.err;
  EXPECT_EQ(count(lost.err, "trainer: "), 1) << lost.err;
  EXPECT_THAT(lost.err, mentions("rank 2 on "));

  EXPECT_THAT(run_unlike(3, options, {"--data", "synthetic:80x1x8x8:2", "--model", "linear"}),
              ends(65, "rank 2 requests other data than rank 0 on the same host"));
}

TEST(Program, RefusesRanksThatWouldTrainDifferently) {
  for (const Words& options : std::vector<Words>{{"--lr", "0.1"}, {"--out", "nowhere"}, {"--dry-run"}}) {
    const ChildResult result = run_unlike(2, short_run(), short_run(options));
    EXPECT_EQ(result.status, 65) << result.err;
    EXPECT_EQ(count(result.err, "trainer: "), 1) << result.err;
    EXPECT_THAT(result.err, mentions("rank 1 has another " + options[0] + " than rank 0"));
  }
}

TEST(Program, EvaluatesACheckpointTheSameOnAnyNumberOfRanks) {
  const ScratchFolder folder;
  const std::string data = "synthetic:7000x1x12x12:4";
  const ChildResult run = run_trainer(2, {"--data", data, "--model", "mlp", "--epochs", "1", "--quiet", "--normalize",
                                          "0.5/0.25", "--out", folder.path() + "/run"});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string trained = "test acc " + last_word(run.out, "test acc ");
  const std::string checkpoint = folder.path() + "/run/checkpoints/step-00000055.h5";
  const std::string json = folder.path() + "/eval.json";

  const ChildResult alone = run_trainer({"eval", "--checkpoint", checkpoint, "--json", json});
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_TRUE(alone.out.starts_with("test loss ")) << alone.out;
  EXPECT_NE(alone.out.find(trained + ", 700 images\n"), std::string::npos) << alone.out << trained;
  EXPECT_NE(read_text(json).find("\"images\": 700"), std::string::npos) << read_text(json);
  EXPECT_EQ(run_trainer(3, {"eval", "--checkpoint", checkpoint}).out, alone.out);
  const ChildResult training =
      run_trainer(3, {"eval", "--checkpoint", checkpoint, "--data", data, "--on", "train", "--quiet"});
  EXPECT_TRUE(training.out.starts_with("train loss ")) << training.out << training.err;
  EXPECT_THAT(training.out, mentions(", 7000 images"));

  const ChildResult other = run_trainer({"eval", "--checkpoint", checkpoint, "--data", "synthetic:70x1x12x12:30"});
  EXPECT_THAT(other, ends(65, "has 30 classes, and the network has "));
  const ScratchFolder untested_data;
  untested_data.write("train-images-idx3-ubyte", tutti::testing_support::idx_file({0x803, 5, 12, 12}, 5 * 144));
  untested_data.write("train-labels-idx1-ubyte", tutti::testing_support::idx_labels({0, 1, 2, 3, 0}));
  const ChildResult untested = run_trainer({"eval", "--checkpoint", checkpoint, "--data", untested_data.path()});
  EXPECT_EQ(untested.status, 0) << untested.err;  // other data without a test set are evaluated whole
  EXPECT_THAT(untested.out, mentions(", 5 images"));
}

TEST(Program, EvaluatesOtherDataByTheTrainingSetsStatistics) {
  const ScratchFolder folder;
  const ScratchFolder dark;
  tutti::testing_support::Bytes pixels = tutti::testing_support::idx_file({0x803, 4, 12, 12}, 0);
  for (int i = 0; i < 4 * 144; ++i) pixels.push_back(i & 1);
  dark.write("train-images-idx3-ubyte", pixels);
  dark.write("train-labels-idx1-ubyte", tutti::testing_support::idx_labels({0, 1, 0, 1}));
  // Trains, resumes, and evaluates on other data.
  const auto evaluated = [&](const std::string& normalize, const std::string& out) {
    const Words words{"--data", dark.path(), "--model", "mlp",         "--epochs", "1",
                      "--out",  out,         "--quiet", "--normalize", normalize,  "--resume"};
    for (int start = 0; start < 2; ++start) EXPECT_EQ(run_trainer(1, words).status, 0) << normalize;
    return run_trainer({"eval", "--checkpoint", out + "/checkpoints/step-00000001.h5", "--data",
                        "synthetic:700x1x12x12:2", "--quiet"})
        .out;
  };
  const std::string known = evaluated("0.00196078431372549/0.00196078431372549", folder.path() + "/known");
  EXPECT_TRUE(known.starts_with("test loss ")) << known;
  EXPECT_EQ(evaluated("auto", folder.path() + "/found"), known);
}

TEST(Program, ComputesPartsInParallelToTheSameDigestOnAnyCores) {
  const auto digest_of = [](const Words& start) {
    const Words training = trainer_words(0, short_run({"--parts", "4", "--exchange", "ring"}));
    return last_word(run_child(with(start, training)).err, ", weights ");
  };
  EXPECT_EQ(digest_of({"taskset", "1"}), digest_of({}));
}

TEST(Program, BenchesMeasureEveryRankCountAndKeepTheFigures) {
  const ScratchFolder folder;
  const std::string json = folder.path() + "/bench.json";
  const ChildResult scaling = run_trainer(3, {"bench", "scaling", "--model", "mlp", "--data", "synthetic:512x1x8x8:4",
                                              "--timed-steps", "3", "--json", json});
  EXPECT_EQ(scaling.status, 0) << scaling.err;
  EXPECT_EQ(count(scaling.out, "strong"), 3) << scaling.out;
  EXPECT_EQ(count(scaling.out, "weak"), 3) << scaling.out;
  EXPECT_EQ(count(read_text(json), "\"efficiency\""), 6);
  EXPECT_EQ(run_trainer({"bench", "allreduce"}).status, 64);

  const ChildResult input = run_trainer(2, {"bench", "input", "--model", "mlp", "--data", "synthetic:512x3x8x8:4",
                                            "--augment", "crop-flip", "--seconds", "0.05", "--json", json});
  EXPECT_EQ(input.status, 0) << input.err;
  EXPECT_EQ(count(input.out, "together / compute alone = "), 1) << input.out;
  EXPECT_GE(count(read_text(json), "\"images_per_second\""), 3);
}

TEST(Program, BenchExchangeReportsTheCostOfEachExchange) {
  const ScratchFolder folder;
  const std::string json = folder.path() + "/bench.json";
  const ChildResult bench =
      run_trainer(4, {"bench", "exchange", "--model", "mlp", "--data", "synthetic:512x1x16x16:4", "--batch-size", "32",
                      "--ranks", "2,4", "--warmup-steps", "1", "--timed-steps", "3", "--json", json});
  ASSERT_EQ(bench.status, 0) << bench.err;
  EXPECT_EQ(count(bench.out, "sharded"), 4) << bench.out;
  const std::string figures = read_text(json);
  const auto figure = [&](const std::string& way, int ranks, const std::string& key) {
    const std::size_t entry = figures.find(fmt::format("\"exchange\": \"{}\",\n      \"ranks\": {},", way, ranks));
    const std::size_t found = figures.find("\"" + key + "\": ", entry);
    EXPECT_NE(std::max(entry, found), std::string::npos) << way << ranks << figures;
    return std::stod(figures.substr(found + key.size() + 4));
  };
  const auto sent = [&](const char* way, int ranks) { return figure(way, ranks, "busiest_rank_sent_bytes"); };
  const auto state = [&](const char* way, int ranks) { return figure(way, ranks, "optimizer_bytes"); };
  const double block = 4.0 * (256 * 256 + 256 + 256 * 4 + 4);
  EXPECT_NEAR(sent("central", 4) / sent("central", 2), 3, 0.01);
  EXPECT_NEAR(sent("ring", 4), 1.5 * block, 0.02 * block);
  EXPECT_NEAR(sent("ring, bf16", 4), 0.75 * block, 0.02 * block);
  EXPECT_NEAR(sent("exact", 4), 1.5 * block, 0.02 * block);
  EXPECT_NEAR(sent("exact, int64", 4), 2.25 * block, 0.02 * block);
  for (const char* way : {"ring", "exact", "central"}) EXPECT_NEAR(state(way, 4), block, 0.02 * block) << way;
  const double indivisible = 4 * 4096;  // bytes: shares are whole blocks of elements
  EXPECT_NEAR(sent("sharded", 4), 1.5 * block, indivisible);
  EXPECT_NEAR(sent("exact, sharded", 4), 1.5 * block, 2 * indivisible);
  for (const char* way : {"exact, sharded", "sharded"}) EXPECT_NEAR(state(way, 4), block / 4, indivisible) << way;
  EXPECT_GT(figure("exact", 4, "exchange_bytes"), 1.9 * block);
  EXPECT_GT(figure("exact, int64", 4, "exchange_bytes"), 2.9 * block);
}

TEST(Program, BenchStepReportsTimeMemoryAndStartUpOfOneTraining) {
  const ScratchFolder folder;
  const std::string json = folder.path() + "/bench.json";
  const ChildResult step =
      run_trainer(2, {"bench", "step", "--model", "mlp", "--data", "synthetic:512x1x8x8:4", "--batch-size", "32",
                      "--warmup-steps", "1", "--timed-steps", "3", "--json", json});
  EXPECT_EQ(step.status, 0) << step.err;
  EXPECT_EQ(count(step.out, "images/s"), 1) << step.out;
  const std::string figures = read_text(json);
  const auto figure = [&](const std::string& key) {
    const std::size_t found = figures.find("\"" + key + "\": ");
    return found == std::string::npos ? -1 : std::stod(figures.substr(found + key.size() + 4));
  };
  EXPECT_EQ(figure("ranks"), 2) << figures;
  EXPECT_NEAR(figure("images_per_second") * figure("step_seconds_median"), 32, 1e-6);
  EXPECT_GT(figure("peak_resident_mib"), 1);
  EXPECT_GT(figure("first_step_seconds"), figure("step_seconds_low_quartile"));
  EXPECT_LT(figure("first_step_seconds"), step.seconds + 0.02);  // the kernel counts in hundredths
  double sum = 0;
  for (const char* item : {"program", "mpi", "assembly", "plans", "step"}) {
    const double seconds = figure(fmt::format("start_{}_seconds", item));
    EXPECT_GE(seconds, 0) << item;
    sum += seconds;
  }
  EXPECT_GT(figure("start_mpi_seconds"), 0);
  EXPECT_NEAR(sum, figure("first_step_seconds"), 1e-9);
  EXPECT_NEAR(figure("start_seconds") + figure("start_mpi_seconds") + figure("step_seconds_median"), sum, 1e-9);
}

TEST(Program, EndsTheWholeJobWithOneMessageWhenARankThrows) {
  const ChildResult result =
      run_child({std::getenv("TUTTI_MPIEXEC"), "-n", "3", std::getenv("TUTTI_FAILING_RANK"), "1"});
  EXPECT_NE(result.status, 0);
  EXPECT_EQ(count(result.err, "failing_rank: "), 1) << result.err;
  EXPECT_THAT(result.err, mentions("failing_rank: rank 1 on ", "sample 300 went up in smoke"));
}

TEST(Program, NeverSavesWeightsThatAreNoLongerFinite) {
  const ScratchFolder folder;
  EXPECT_THAT(run_trainer(short_run(
                  {"--lr", "1e20", "--out", folder.path(), "--checkpoint-every", "1", "--last-batch", "discard"})),
              ends(88));
  for (const auto& file : std::filesystem::directory_iterator(folder.path() + "/checkpoints")) {
    const ChildResult again = run_trainer({"--resume", "--out", folder.path(), "--steps", "1"});
    EXPECT_EQ(again.status, 0) << file.path() << again.err;
  }
}

TEST(Program, StopsWithItsOwnStatusWhenTheLossIsNoLongerFinite) {
  const ScratchFolder folder;
  const ChildResult result = run_trainer(2, short_run({"--lr", "1e30", "--out", folder.path()}));
  EXPECT_EQ(result.status, 88) << result.err;
  EXPECT_EQ(count(result.err, "no longer a finite number at step 2 on every rank"), 1) << result.err;
  EXPECT_NE(read_text(folder.path() + "/exit.json").find("\"status\":88"), std::string::npos);
}

TEST(Program, ReportsSkippedStepsAndEndsWhenAllAreSkipped) {
  const ScratchFolder folder;
  const ChildResult result =
      run_trainer(2, short_run({"--normalize", "0/1e-42", "--on-nonfinite", "skip", "--out", folder.path()}));
  EXPECT_EQ(result.status, 88) << result.err;
  EXPECT_EQ(count(result.err, " is no longer a finite number at step "), 10) << result.err;
  EXPECT_EQ(count(result.err, ": step skipped"), 9) << result.err;
  EXPECT_EQ(count(result.err, "at step 10 on every rank"), 1) << result.err;
  EXPECT_EQ(count(result.err, "10 steps in a row were skipped"), 1) << result.err;
  const std::string metrics = read_text(folder.path() + "/metrics.jsonl");
  EXPECT_EQ(count(metrics, "\"event\":\"skipped\""), 9) << metrics;
  EXPECT_THAT(metrics, mentions("{\"event\":\"skipped\",\"step\":9,\"rank\":0,\"tensor\":\"dense2/weight\","));
}

TEST(Program, ConvertsDataAndDescribesThem) {
  const ScratchFolder folder;
  const std::string file = folder.path() + "/set.h5";
  const ChildResult convert = run_trainer(2, {"data", "convert", "synthetic:200x1x6x6:3", file});
  EXPECT_EQ(convert.status, 0) << convert.err;
  EXPECT_TRUE(convert.out.starts_with(file + ": 200 training and 20 test images, 0.0 MiB, in ")) << convert.out;
  EXPECT_EQ(run_trainer({"data", "convert", "glyphs", file}).status, 64);

  const ChildResult original = run_trainer({"data", "info", "synthetic:200x1x6x6:3"});
  EXPECT_EQ(original.status, 0) << original.err;
  const ChildResult info = run_trainer({"data", "info", file});
  EXPECT_EQ(info.out, original.out);
  EXPECT_THAT(info.out, mentions("training   200 images of 1x6x6, digest ", "classes    3\n"));

  const auto train = [](const std::string& data) {
    return run_trainer({"--data", data, "--model", "mlp", "--epochs", "1"});
  };
  EXPECT_EQ(without_times(train(file).out), without_times(train("synthetic:200x1x6x6:3").out));
}

}  // namespace
}  // namespace tutti::test
