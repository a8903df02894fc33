#include "tutti/storage/checkpoint_store.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "storage/sample_state.hpp"
#include "storage/state_equality.hpp"
#include "support/overwrite.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

namespace {

std::string no_renames_to;

}  // namespace

// Replaces the system's function.
extern "C" int rename(const char* from, const char* to) noexcept {
  if (to != no_renames_to) return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
  errno = EIO;
  return -1;
}

namespace tutti {
namespace {

namespace fs = std::filesystem;

class CheckpointFolder : public testing::Test {
 protected:
  // The name of the newest checkpoint, or "". The output of the call is in output_.
  std::string newest() {
    testing::internal::CaptureStderr();
    std::optional<LoadedCheckpoint> found;
    try {
      found = store_.newest(*world_, log_);
    } catch (...) {
      output_ = testing::internal::GetCapturedStderr();
      throw;
    }
    output_ = testing::internal::GetCapturedStderr();
    if (!found) return {};
    EXPECT_TRUE(found->path.starts_with(folder_.path() + "/")) << found->path;
    return fs::path(found->path).filename().string();
  }

  std::int64_t warnings() const { return std::ranges::count(output_, '\n'); }
  void save(std::int64_t step) const { store_.save(state_at(step)); }
  std::string image(std::int64_t step) const { return folder_.file(fmt::format("step-{:08}.h5", step)); }
  std::string manifest(std::int64_t step) const { return folder_.file(fmt::format("step-{:08}.json", step)); }

  static void flip(const std::string& path, std::size_t at, unsigned mask) {
    auto bytes = read_file_bytes(path);
    bytes.at(at) ^= static_cast<std::byte>(mask);
    overwrite(path, bytes);
  }

  static void write_text(const std::string& path, std::string_view text) {
    overwrite(path, std::as_bytes(std::span(text)));
  }

  ScratchFolder folder_;
  std::unique_ptr<World> world_ = make_solo_world();
  CheckpointStore store_{folder_.path()};
  Log log_;
  std::string output_;
};

TEST_F(CheckpointFolder, GivesBackEveryBitOfWhatWasSaved) {
  const SaveReport report = store_.save(sample_state());
  EXPECT_EQ(report.path, image(42));
  EXPECT_EQ(report.bytes, static_cast<std::int64_t>(fs::file_size(image(42))));
  EXPECT_EQ(newest(), "step-00000042.h5");
  EXPECT_EQ(output_, "");
  expect_equal_bits(store_.newest(*world_, log_).value().state, sample_state());
  expect_equal_bits(load_checkpoint(image(42)).state, sample_state());
}

TEST_F(CheckpointFolder, SavesThePlanChoicesAndTheStateOfTheExchange) {
  TrainState state = sample_state();
  state.exchange = {sample_array("exact/levels", {6}, -7)};
  state.choices = "conv 1x28x28 engine 4\nconv 64x7x7 engine 2\n";
  store_.save(state);
  expect_equal_bits(store_.newest(*world_, log_).value().state, state);
}

TEST_F(CheckpointFolder, SavesAveragesWhichCanTakeThePlaceOfTheWeights) {
  TrainState state = sample_state();
  state.progress.tests_since_best = 2;
  for (const auto* arrays : {&state.parameters, &state.statistics}) {
    for (NamedArray array : *arrays) {
      array.values.assign(array.values.size(), 0.25f);
      state.averages.push_back(array);
    }
  }
  std::ranges::sort(state.averages, {}, &NamedArray::name);
  store_.save(state);
  TrainState loaded = store_.newest(*world_, log_).value().state;
  expect_equal_bits(loaded, state);
  use_averages(loaded);
  EXPECT_TRUE(loaded.averages.empty());
  for (const auto* arrays : {&loaded.parameters, &loaded.statistics}) {
    for (const NamedArray& array : *arrays) EXPECT_EQ(array.values, std::vector(array.values.size(), 0.25f));
  }
}

TEST_F(CheckpointFolder, KeepsLargeLossesAndRedoneSteps) {
  TrainState state = sample_state();
  state.progress.epoch_sums.large_losses = {1, 20, 300, 4000};
  state.progress.epoch_sums.weight = 80.5;
  state.progress.redone_steps = 2;
  store_.save(state);
  expect_equal_bits(store_.newest(*world_, log_).value().state, state);
}

TEST_F(CheckpointFolder, HasEqualBytesForEqualStatesInAnyOrder) {
  TrainState shuffled = sample_state();
  std::ranges::reverse(shuffled.parameters);
  store_.save(sample_state());
  const auto first = read_file_bytes(image(42));
  store_.save(load_checkpoint(image(42)).state);
  EXPECT_EQ(read_file_bytes(image(42)), first);
  store_.save(shuffled);
  EXPECT_EQ(read_file_bytes(image(42)), first);
  EXPECT_EQ(folder_.entries(), 2u);
}

TEST_F(CheckpointFolder, IsMadeWhenItIsMissing) {
  const CheckpointStore deeper(folder_.file("a/b"));
  EXPECT_FALSE(deeper.holds_any());
  EXPECT_FALSE(deeper.newest(*world_, log_));
  deeper.save(sample_state());
  EXPECT_TRUE(deeper.holds_any());
  EXPECT_EQ(deeper.newest(*world_, log_).value().path, folder_.file("a/b/step-00000042.h5"));
}

TEST_F(CheckpointFolder, HasNoCheckpointsWithOnlyOtherFiles) {
  EXPECT_FALSE(store_.holds_any());
  for (const char* name : {"metrics.jsonl", "step-1.h5", "step-00000001.h5.tmp.host.7", "step-0000000x.h5", "step-.h5",
                           "step--0000001.h5", "step-000000012.h5", "step-00000001.txt"}) {
    write_text(folder_.file(name), "x");
  }
  EXPECT_FALSE(store_.holds_any());
  EXPECT_EQ(newest(), "");
  write_text(image(1), "x");
  EXPECT_TRUE(store_.holds_any());
}

TEST_F(CheckpointFolder, OrdersStepsAsNumbersHoweverManyDigits) {
  for (const std::int64_t step : {9, 10, 2, 11, 1, 8, 3, 7, 4, 6, 5, 0}) save(step);
  EXPECT_EQ(newest(), "step-00000011.h5");
  save(99999999);
  save(100000000);
  EXPECT_EQ(newest(), "step-100000000.h5");
  EXPECT_EQ(warnings(), 0);
}

TEST_F(CheckpointFolder, SkipsDamagedOnesWithOneWarningEachAndNeverTriesThemAgain) {
  for (const std::int64_t step : {1, 2, 3, 4, 5, 6}) save(step);
  const auto whole = read_file_bytes(image(6));
  overwrite(image(6), std::span(whole).first(whole.size() - 1));
  flip(image(5), 4000, 0x10);
  flip(manifest(4), 40, 0x10);
  fs::remove(image(3));
  EXPECT_EQ(newest(), "step-00000002.h5");
  EXPECT_EQ(warnings(), 4);
  for (const int step : {3, 4, 5, 6}) EXPECT_THAT(output_, mentions(fmt::format("step-0000000{}.h5", step)));
  EXPECT_EQ(newest(), "step-00000002.h5");
  EXPECT_EQ(output_, "");
  EXPECT_TRUE(fs::exists(image(5) + ".bad") && fs::exists(manifest(5) + ".bad"));
}

TEST_F(CheckpointFolder, SkipsTheRenamedFilesOfAnother) {
  save(1);
  fs::copy_file(image(1), image(7));
  fs::copy_file(manifest(1), manifest(7));
  EXPECT_EQ(newest(), "step-00000001.h5");
  EXPECT_EQ(warnings(), 1);
}

TEST_F(CheckpointFolder, SkipsFilesThatTheSystemCannotReadAndDoesNotRenameThem) {
  save(1);
  save(2);
  fs::remove(image(2));
  fs::create_directory(image(2));
  EXPECT_EQ(newest(), "step-00000001.h5");
  EXPECT_EQ(warnings(), 1);
  EXPECT_TRUE(fs::is_directory(image(2)));
}

// A resume from an older one would lose the steps of a newer program.
TEST_F(CheckpointFolder, IsRefusedWholeWhenItsNewestHasAnotherFormat) {
  save(1);
  save(2);
  std::string text(reinterpret_cast<const char*>(read_file_bytes(manifest(2)).data()), fs::file_size(manifest(2)));
  const std::string version = "\"format_version\": 3";
  ASSERT_NE(text.find(version), std::string::npos);
  write_text(manifest(2), text.replace(text.find(version), version.size(), "\"format_version\": 4,\n  \"more\": 0"));
  EXPECT_THAT(thrown_by([&] { newest(); }),
              reports(ErrorSource::input, "has format 4, this program reads 2 and 3: use a newer version"));
  EXPECT_TRUE(fs::exists(manifest(2)));
}

// A newer program has saved it, for example.
TEST_F(CheckpointFolder, IsRefusedWholeWhenItsNewestIsAsItWasSavedButNotUnderstood) {
  save(1);
  save(2);
  const auto facts = [&] {
    return std::pair(fmt::format("{}", fs::file_size(image(2))), sha256_text(read_file_bytes(image(2))));
  };
  const auto before = facts();
  MemoryFileWriter other;
  other.add_text("/run/more", "of a newer program");
  overwrite(image(2), other.finish());
  const auto after = facts();
  std::string text = read_file_text(manifest(2));
  for (const auto& [old, now] : {std::pair(before.first, after.first), std::pair(before.second, after.second)}) {
    ASSERT_NE(text.find(old), std::string::npos);
    text.replace(text.find(old), old.size(), now);
  }
  write_text(manifest(2), text);
  EXPECT_THAT(thrown_by([&] { newest(); }),
              reports(ErrorSource::checkpoint, "is as it was saved, but cannot be used here"));
  EXPECT_TRUE(fs::exists(manifest(2)));
}

TEST_F(CheckpointFolder, ReportsEveryTimeThatNoneOfItsCheckpointsIsGood) {
  for (const std::int64_t step : {1, 2}) {
    save(step);
    flip(image(step), 100, 1);
  }
  for (const int warned : {2, 0}) {
    const Error error = thrown_by([&] { newest(); });
    EXPECT_EQ(error.source(), ErrorSource::checkpoint);
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    EXPECT_EQ(error.exit_status(), ExitStatus::no_checkpoint);
    EXPECT_THAT(error.what(), mentions("no checkpoint in '" + folder_.path() + "' is intact"));
    EXPECT_EQ(warnings(), warned);
  }
  EXPECT_TRUE(store_.holds_any());
}

TEST_F(CheckpointFolder, IgnoresAFileWithoutManifestButNeverRemovesIt) {
  for (const std::int64_t step : {1, 2, 3}) save(step);
  fs::remove(manifest(1));
  fs::remove(manifest(3));
  EXPECT_EQ(newest(), "step-00000002.h5");
  EXPECT_EQ(store_.steps(), std::vector<std::int64_t>{2});
  save(4);
  store_.clear_leftovers();
  store_.prune({.newest = 1});
  EXPECT_TRUE(fs::exists(image(1)) && fs::exists(image(3)) && fs::exists(image(4)) && !fs::exists(image(2)));
  fs::remove(manifest(4));
  EXPECT_EQ(thrown_by([&] { newest(); }).source(), ErrorSource::checkpoint);
}

TEST_F(CheckpointFolder, KeepsTheNewestAndTheBest) {
  for (std::int64_t step = 1; step <= 6; ++step) save(step);
  store_.prune({.newest = 0});
  EXPECT_EQ(folder_.entries(), 12u);
  store_.prune({.newest = 2, .best_step = 3});
  EXPECT_EQ(store_.steps(), (std::vector<std::int64_t>{3, 5, 6}));
  EXPECT_EQ(folder_.entries(), 6u);
}

TEST_F(CheckpointFolder, LosesTheTemporaryFilesOfAKilledSave) {
  save(1);
  // At any time between the first byte of the image and the last rename.
  write_text(image(2) + ".tmp.host.7", "x");
  write_text(image(3), "x");
  write_text(manifest(3) + ".tmp.host.7", "x");
  write_text(folder_.file("step-00000004.1.h5.tmp.host.8"), "x");
  write_text(folder_.file("step-00000004.2.h5"), "x");
  write_text(folder_.file("step-00000004.2.json"), "x");
  // Or between the first and the last call of a prune.
  write_text(image(5), "x");
  write_text(folder_.file("step-00000005.1.h5"), "x");
  write_text(manifest(5) + ".tmp.old", "x");
  write_text(folder_.file("notes.tmp.host.7"), "x");
  store_.clear_leftovers();
  EXPECT_EQ(folder_.entries(), 3u);
  EXPECT_EQ(newest(), "step-00000001.h5");
  EXPECT_EQ(output_, "");
}

TEST_F(CheckpointFolder, LosesOlderFilesOfFailedSavesButNoneThatIsBeingSaved) {
  for (const int step : {2, 4}) {
    write_text(folder_.file(fmt::format("step-0000000{}.1.h5", step)), "x");
    write_text(folder_.file(fmt::format("step-0000000{}.1.json", step)), "x");
  }
  for (const std::int64_t step : {1, 3, 9}) save(step);
  store_.prune({.newest = 1, .last_step = 3});
  EXPECT_EQ(store_.steps(), (std::vector<std::int64_t>{3, 9}));
  EXPECT_EQ(folder_.entries(), 6u);
  EXPECT_TRUE(fs::exists(folder_.file("step-00000004.1.h5")));
}

TEST_F(CheckpointFolder, KeepsACommittedCheckpointWhenSavingItAgainFails) {
  save(1);
  no_renames_to = manifest(1);
  EXPECT_EQ(thrown_by([&] { save(1); }).source(), ErrorSource::save);
  no_renames_to.clear();
  EXPECT_EQ(newest(), "step-00000001.h5");
}

TEST_F(CheckpointFolder, KeepsTheOldCheckpointsWhenASaveFails) {
  save(1);
  fs::create_directory(manifest(2));
  EXPECT_EQ(thrown_by([&] { save(2); }).source(), ErrorSource::save);
  EXPECT_FALSE(fs::exists(image(2)));
  fs::create_directory(image(3));
  EXPECT_EQ(thrown_by([&] { save(3); }).source(), ErrorSource::save);
  EXPECT_EQ(folder_.entries(), 4u);
  write_text(folder_.file("file"), "x");
  const CheckpointStore blocked(folder_.file("file"));
  EXPECT_EQ(thrown_by([&] { blocked.save(sample_state()); }).source(), ErrorSource::save);
  EXPECT_EQ(thrown_by([&] { blocked.holds_any(); }).source(), ErrorSource::io);
}

TEST_F(CheckpointFolder, RefusesToSaveImpossibleProgress) {
  const auto refuses = [&](auto change) {
    TrainState state = sample_state();
    change(state.progress);
    EXPECT_EQ(thrown_by([&] { store_.save(state); }).source(), ErrorSource::internal);
  };
  refuses([](TrainProgress& progress) { progress.step = -1; });
  refuses([](TrainProgress& progress) { progress.step_in_epoch = progress.step + 1; });
  refuses([](TrainProgress& progress) { progress.epoch_sums.correct = progress.epoch_sums.samples + 1; });
  refuses([](TrainProgress& progress) { progress.epoch_seconds = -0.5; });
  EXPECT_FALSE(store_.holds_any());
}

// Each writer has a share of the arrays, as the hosts of a very large state have.
TEST_F(CheckpointFolder, HasAStateInMultipleFilesWithOneManifest) {
  const TrainState whole = sample_state();
  TrainState first = whole;
  TrainState second = whole;
  first.optimizer.clear();
  second.parameters.clear();
  second.statistics.clear();
  second.exchange.clear();
  std::thread other([&] { store_.save(second, {.file = 1, .files = 2}); });
  store_.save(first, {.file = 0, .files = 2});
  other.join();
  store_.prune({});
  EXPECT_EQ(folder_.entries(), 3u);
  EXPECT_EQ(newest(), "step-00000042.h5");
  expect_equal_bits(load_checkpoint(image(42)).state, whole);
  flip(folder_.file("step-00000042.1.h5"), 3000, 1);
  EXPECT_THAT(thrown_by([&] { load_checkpoint(image(42)); }).what(), mentions("step-00000042.1.h5"));
}

}  // namespace
}  // namespace tutti
