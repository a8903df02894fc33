#include "tutti/checkpoint/checkpoint_store.hpp"

#include "tutti/storage/array_file.hpp"
#include "tutti/storage/whole_file.hpp"

#include "checkpoint/sample_state.hpp"
#include "checkpoint/state_equality.hpp"
#include "support/overwrite.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

TrainState state_at(std::int64_t step) {
  TrainState state = sample_state();
  state.progress.step = step;
  state.progress.step_in_epoch = std::min<std::int64_t>(step, 5);
  return state;
}

nlohmann::json json_of(const std::vector<std::byte>& bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  return nlohmann::json::parse(text, text + bytes.size());
}

class CheckpointFolder : public testing::Test {
 protected:
  // The newest checkpoint's name without folder, "" for none; what was said meanwhile is in said_.
  std::string newest() {
    testing::internal::CaptureStderr();
    std::optional<std::string> found;
    try {
      found = store_.newest(*world_, log_);
    } catch (...) {
      said_ = testing::internal::GetCapturedStderr();
      throw;
    }
    said_ = testing::internal::GetCapturedStderr();
    if (!found) return {};
    EXPECT_TRUE(found->starts_with(folder_.path() + "/")) << *found;
    return fs::path(*found).filename().string();
  }

  std::int64_t warnings() const { return std::ranges::count(said_, '\n'); }
  void save(std::int64_t step) const { store_.save(*world_, state_at(step)); }
  std::string image(std::int64_t step) const { return folder_.file(fmt::format("step-{:08}.h5", step)); }
  std::string manifest(std::int64_t step) const { return folder_.file(fmt::format("step-{:08}.json", step)); }

  static void flip(const std::string& path, std::size_t at, unsigned mask) {
    auto bytes = read_whole(path);
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
  std::string said_;
};

TEST_F(CheckpointFolder, GivesBackEveryBitOfWhatWasSaved) {
  store_.save(*world_, sample_state());
  EXPECT_EQ(newest(), "step-00000042.h5");
  EXPECT_EQ(said_, "");
  expect_equal_bits(load_checkpoint(image(42)), sample_state());
}

TEST_F(CheckpointFolder, KeepsWhatProcessorsChoseAndTheExchangeKnows) {
  TrainState state = sample_state();
  state.exchange = {sample_array("exact/levels", {6}, -7)};
  state.choices = "conv 1x28x28 engine 4\nconv 64x7x7 engine 2\n";
  store_.save(*world_, state);
  expect_equal_bits(load_checkpoint(store_.newest(*world_, log_).value()), state);
}

TEST_F(CheckpointFolder, HoldsAStateWithoutAnyArrayOrText) {
  store_.save(*world_, TrainState{});
  expect_equal_bits(load_checkpoint(image(0)), TrainState{});
}

TEST_F(CheckpointFolder, HoldsEqualBytesForEqualStatesInWhateverOrder) {
  TrainState shuffled = sample_state();
  std::ranges::reverse(shuffled.parameters);
  store_.save(*world_, sample_state());
  const auto first = read_whole(image(42));
  store_.save(*world_, load_checkpoint(image(42)));
  EXPECT_EQ(read_whole(image(42)), first);
  store_.save(*world_, shuffled);
  EXPECT_EQ(read_whole(image(42)), first);
  EXPECT_EQ(folder_.entries(), 2u);
}

TEST_F(CheckpointFolder, IsMadeWhenItIsMissing) {
  const CheckpointStore deeper(folder_.file("a/b"));
  EXPECT_FALSE(deeper.holds_any());
  EXPECT_EQ(deeper.newest(*world_, log_), std::nullopt);
  deeper.save(*world_, sample_state());
  EXPECT_TRUE(deeper.holds_any());
  EXPECT_EQ(deeper.newest(*world_, log_), folder_.file("a/b/step-00000042.h5"));
}

TEST_F(CheckpointFolder, HoldsNoneWhileOnlyOtherFilesAreInIt) {
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

TEST_F(CheckpointFolder, PassesOverDamagedOnesWithOneWarningEach) {
  for (const std::int64_t step : {1, 2, 3, 4, 5, 6}) save(step);
  const auto whole = read_whole(image(6));
  overwrite(image(6), std::span(whole).first(whole.size() - 1));
  flip(image(5), 4000, 0x10);
  fs::remove(manifest(4));
  fs::remove(image(3));
  EXPECT_EQ(newest(), "step-00000002.h5");
  EXPECT_EQ(warnings(), 4);
  EXPECT_THAT(said_, HasSubstr("its manifest says"));
  EXPECT_THAT(said_, HasSubstr("its digest is not"));
  EXPECT_THAT(said_, HasSubstr("it has no manifest"));
  EXPECT_THAT(said_, HasSubstr("No such file"));
  EXPECT_THAT(said_, Not(HasSubstr("step-00000002")));
}

TEST_F(CheckpointFolder, PassesOverOneCutShortAtAnyLength) {
  save(1);
  save(2);
  const auto whole = read_whole(image(2));
  for (std::size_t length = 0; length < whole.size(); length += 499) {
    overwrite(image(2), std::span(whole).first(length));
    EXPECT_EQ(newest(), "step-00000001.h5") << length;
  }
}

TEST_F(CheckpointFolder, PassesOverOneWithAnyFlippedByte) {
  save(1);
  save(2);
  const std::size_t size = read_whole(image(2)).size();
  for (std::size_t at = 0; at < size; at += 211) {
    flip(image(2), at, 0x40);
    EXPECT_EQ(newest(), "step-00000001.h5") << at;
    flip(image(2), at, 0x40);
  }
  EXPECT_EQ(newest(), "step-00000002.h5");
}

TEST_F(CheckpointFolder, PassesOverTheRenamedFilesOfAnother) {
  save(1);
  fs::copy_file(image(1), image(7));
  fs::copy_file(manifest(1), manifest(7));
  EXPECT_EQ(newest(), "step-00000001.h5");
  EXPECT_THAT(said_, HasSubstr("that of another checkpoint"));
}

TEST_F(CheckpointFolder, PassesOverForeignFilesUnderACheckpointsName) {
  save(1);
  write_text(image(2), "not HDF5");
  write_text(manifest(2), "not JSON");
  ArrayImage foreign;
  foreign.add_text("/text", "HDF5, but no checkpoint");
  overwrite(image(3), foreign.finish());
  write_text(manifest(3), "{}");
  fs::create_directory(image(4));
  fs::create_directory(manifest(4));
  EXPECT_EQ(newest(), "step-00000001.h5");
  EXPECT_EQ(warnings(), 3);
}

// Any change of any byte is noticed, or leaves every value as it was.
TEST_F(CheckpointFolder, NeverBelievesADamagedManifest) {
  save(42);
  const auto whole = read_whole(manifest(42));
  const auto expected = json_of(whole);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const unsigned mask : {0x01u, 0x02u, 0x04u, 0x10u, 0x20u, 0x80u, 0xFFu}) {
      auto damaged = whole;
      damaged[at] ^= static_cast<std::byte>(mask);
      overwrite(manifest(42), damaged);
      try {
        newest();
        EXPECT_EQ(json_of(damaged), expected) << at << " ^ " << mask;
      } catch (const Error& error) {
        EXPECT_EQ(error.source(), ErrorSource::checkpoint) << error.what();
      }
    }
  }
}

TEST_F(CheckpointFolder, NeverBelievesAManifestCutShort) {
  save(42);
  const auto whole = read_whole(manifest(42));
  const std::size_t newline = 1;
  for (std::size_t length = 0; length < whole.size() - newline; ++length) {
    overwrite(manifest(42), std::span(whole).first(length));
    EXPECT_EQ(thrown_by([&] { newest(); }).source(), ErrorSource::checkpoint) << length;
  }
}

TEST_F(CheckpointFolder, RefusesManifestsWithWrongTypesAndOtherVersions) {
  save(42);
  const auto whole = json_of(read_whole(manifest(42)));
  const auto refused_with = [&](const char* field, const nlohmann::json& value) {
    auto changed = whole;
    changed[field] = value;
    write_text(manifest(42), changed.dump());
    EXPECT_EQ(thrown_by([&] { newest(); }).source(), ErrorSource::checkpoint) << changed;
    return said_;
  };
  EXPECT_THAT(refused_with("format_version", 2), HasSubstr("format version 2; this program reads 1"));
  EXPECT_THAT(refused_with("format_version", "1"), HasSubstr("\"format_version\" in its manifest is no count"));
  EXPECT_THAT(refused_with("bytes", -1), HasSubstr("no count"));
  EXPECT_THAT(refused_with("bytes", 1.5), HasSubstr("no count"));
  EXPECT_THAT(refused_with("step", 18446744073709551615u), HasSubstr("no count"));
  EXPECT_THAT(refused_with("digest", 7), HasSubstr("no text"));
  EXPECT_THAT(refused_with("digest", "0123"), HasSubstr("16 hexadecimal digits"));
  EXPECT_THAT(refused_with("digest", "0X23456789abcdef"), HasSubstr("16 hexadecimal digits"));
  EXPECT_THAT(refused_with("file", "../../etc/passwd"), HasSubstr("that of another checkpoint"));
  EXPECT_THAT(refused_with("epoch", 4), HasSubstr("its manifest says step 42 of epoch 4"));
  EXPECT_THAT(refused_with("more", 1), HasSubstr("7 fields"));
}

TEST_F(CheckpointFolder, SaysSoWhenNoneOfItsCheckpointsIsGood) {
  for (const std::int64_t step : {1, 2}) {
    save(step);
    fs::remove(manifest(step));
  }
  const Error error = thrown_by([&] { newest(); });
  EXPECT_EQ(error.source(), ErrorSource::checkpoint);
  EXPECT_EQ(error.reach(), ErrorReach::all_ranks);
  EXPECT_EQ(error.exit_status(), ExitStatus::no_checkpoint);
  EXPECT_THAT(error.what(), HasSubstr("none of the 2 checkpoints in '" + folder_.path() + "' is good"));
  EXPECT_EQ(warnings(), 2);
}

TEST_F(CheckpointFolder, ReportsFailedSavesAsAgreedByAllRanks) {
  write_text(folder_.file("file"), "x");
  const CheckpointStore blocked(folder_.file("file"));
  const Error error = thrown_by([&] { blocked.save(*world_, sample_state()); });
  EXPECT_EQ(error.source(), ErrorSource::save);
  EXPECT_EQ(error.reach(), ErrorReach::all_ranks);
  EXPECT_THAT(error.what(), HasSubstr(folder_.file("file")));
  EXPECT_EQ(thrown_by([&] { blocked.holds_any(); }).source(), ErrorSource::io);
}

TEST_F(CheckpointFolder, KeepsTheOldCheckpointsWhenASaveFails) {
  save(1);
  fs::create_directory(image(2));
  EXPECT_EQ(thrown_by([&] { save(2); }).source(), ErrorSource::save);
  EXPECT_EQ(folder_.entries(), 3u);
  EXPECT_EQ(newest(), "step-00000001.h5");
}

TEST_F(CheckpointFolder, RefusesToSaveProgressThatCannotBe) {
  const auto refuses = [&](auto change) {
    TrainState state = sample_state();
    change(state.progress);
    EXPECT_EQ(thrown_by([&] { store_.save(*world_, state); }).source(), ErrorSource::internal);
  };
  refuses([](TrainProgress& progress) { progress.step = -1; });
  refuses([](TrainProgress& progress) { progress.step_in_epoch = progress.step + 1; });
  refuses([](TrainProgress& progress) { progress.epoch_sums.correct = progress.epoch_sums.samples + 1; });
  refuses([](TrainProgress& progress) { progress.epoch_seconds = -0.5; });
  EXPECT_FALSE(store_.holds_any());
}

}  // namespace
}  // namespace tutti
