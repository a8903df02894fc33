#include "tutti/base/digest.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "storage/sample_state.hpp"
#include "storage/state_equality.hpp"
#include "storage/written_checkpoint.hpp"
#include "support/overwrite.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <map>

namespace tutti {
namespace {

using testing::AllOf;

// Adds an array and returns its digest.
using Field = std::function<std::uint64_t(MemoryFileWriter&, const std::string&)>;

std::string own_name(const std::string& path) { return path.substr(path.find('/', 1) + 1); }

template <class T>
Field array(Shape shape, std::vector<T> values) {
  return [=](MemoryFileWriter& image, const std::string& path) {
    image.add(path, shape, std::span<const T>(values));
    return digest(own_name(path), std::span<const T>(values));
  };
}

template <class T>
Field scalar(T value) {
  return array<T>({}, {value});
}

Field numbers(std::vector<std::int64_t> values) { return array<std::int64_t>({std::ssize(values)}, values); }

Field text(std::string value) {
  return [=](MemoryFileWriter& image, const std::string& path) {
    image.add_text(path, value);
    return digest(own_name(path), std::span(reinterpret_cast<const std::uint8_t*>(value.data()), value.size()));
  };
}

// A checkpoint written array by array, so that each can be left out or replaced. It has a seal and no manifest.
class HandmadeCheckpoint : public testing::Test {
 protected:
  using Contents = std::map<std::string, Field>;

  static Contents good() {
    return {{"/format_version", scalar(std::int32_t{2})},
            {"/parameters/a/bias", array<float>({2, 1}, {1, -2})},
            {"/progress/best", numbers({9, 5, 8})},
            {"/progress/carried_over", scalar(std::int64_t{3})},
            {"/progress/epoch", scalar(std::int64_t{1})},
            {"/progress/epoch_seconds", scalar(1.5)},
            {"/progress/epoch_sums", numbers({5, 6, 7, 0})},
            {"/progress/learning_rate", scalar(0.25)},
            {"/progress/parts", scalar(std::int64_t{4})},
            {"/progress/planned_steps", scalar(std::int64_t{80})},
            {"/progress/samples_in_epoch", scalar(std::int64_t{7})},
            {"/progress/seed", scalar(std::int64_t{-1})},
            {"/progress/step", scalar(std::int64_t{10})},
            {"/progress/step_in_epoch", scalar(std::int64_t{2})},
            {"/run/command_line", text("trainer")},
            {"/run/configuration", text("")},
            {"/run/data_digest", text("00000000000000ff")},
            {"/run/model", text("")},
            {"/run/versions", text("")}};
  }

  // The digest by the definition of the format.
  std::string write(const Contents& contents, const std::function<void(std::string&)>& change_digests = {}) const {
    MemoryFileWriter image;
    std::string lines;
    std::uint64_t sum = 0;
    for (const auto& [path, add] : contents) {
      const std::uint64_t digest = add(image, path);
      lines += digest_text(digest) + " " + path + "\n";
      sum += digest;
    }
    lines += digest_text(sum) + " all\n";
    if (change_digests) change_digests(lines);
    image.add_text("/run/digests", lines);
    overwrite(folder_.file("hand.h5"), image.finish());
    return folder_.file("hand.h5");
  }

  std::string refusal(const Contents& contents, const std::function<void(std::string&)>& change_digests = {}) const {
    const Error error = thrown_by([&] { load_checkpoint(write(contents, change_digests)); });
    EXPECT_THAT(error, reports(ErrorSource::checkpoint, folder_.file("hand.h5")));
    return error.what();
  }

  std::string refusal_with(const std::string& path, const Field& content) const {
    Contents contents = good();
    contents[path] = content;
    return refusal(contents);
  }

  ScratchFolder folder_;
};

TEST_F(HandmadeCheckpoint, LoadsAsTheFormatDefines) {
  const LoadedCheckpoint loaded = load_checkpoint(write(good()));
  EXPECT_EQ(loaded.path, folder_.file("hand.h5"));
  EXPECT_EQ(loaded.state.progress, (TrainProgress{.epoch = 1,
                                                  .step_in_epoch = 2,
                                                  .step = 10,
                                                  .samples_in_epoch = 7,
                                                  .carried_over = 3,
                                                  .planned_steps = 80,
                                                  .learning_rate = 0.25,
                                                  .seed = -1,
                                                  .parts = 4,
                                                  .epoch_sums = LossSums{5, 6, 7, 0},
                                                  .epoch_seconds = 1.5,
                                                  .best = {9, 5, 8}}));
  EXPECT_EQ(loaded.state.data_digest, 255u);
  EXPECT_EQ(loaded.state.command_line, "trainer");
  expect_equal_bits(loaded.state.parameters, {{"a/bias", {2, 1}, {1, -2}}});
  EXPECT_TRUE(loaded.state.optimizer.empty());
}

TEST_F(HandmadeCheckpoint, IsRefusedWithoutAnyOneOfItsFields) {
  for (const auto& [path, add] : good()) {
    if (path.starts_with("/parameters")) continue;
    Contents contents = good();
    contents.erase(path);
    EXPECT_THAT(refusal(contents), mentions(path));
  }
}

TEST_F(HandmadeCheckpoint, IsRefusedWithAFieldOfAnotherType) {
  for (const auto& [path, add] : good()) {
    EXPECT_THAT(refusal_with(path, scalar(std::uint8_t{1})), mentions(path));
  }
}

TEST_F(HandmadeCheckpoint, IsRefusedWithNumbersThatNoRunReaches) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal_with("/format_version", scalar(std::int32_t{1})),
              mentions("has format 1, this program reads 2: resume with the version of this program that wrote it"));
  EXPECT_THAT(refusal_with("/format_version", scalar(std::int32_t{3})),
              mentions("has format 3, this program reads 2: use a newer version"));
  for (const char* count : {"epoch", "step", "step_in_epoch", "samples_in_epoch", "carried_over", "planned_steps"}) {
    EXPECT_THAT(refusal_with(std::string("/progress/") + count, scalar(std::int64_t{-1})), mentions("negative"));
  }
  EXPECT_THAT(refusal_with("/progress/parts", scalar(std::int64_t{0})), mentions("/progress/parts is 0"));
  EXPECT_THAT(refusal_with("/progress/step_in_epoch", scalar(std::int64_t{11})), mentions("the 10 steps of the run"));
  EXPECT_THAT(refusal_with("/progress/epoch_sums", numbers({5, 8, 7, 0})), mentions("8 correct of 7 samples"));
  EXPECT_THAT(refusal_with("/progress/epoch_sums", numbers({5, 6, 7, 1})), mentions("not finite"));
  EXPECT_THAT(refusal_with("/progress/best", numbers({9, 9, 8})), mentions("9 of 8 at best"));
  EXPECT_THAT(refusal_with("/progress/best", numbers({11, 5, 8})), mentions("step 11, but the run has 10 steps"));
  EXPECT_THAT(refusal_with("/progress/best", numbers({-1, 5, 8})), mentions("step -1"));
  EXPECT_THAT(refusal_with("/progress/epoch_seconds", scalar(kNan)), mentions("epoch_seconds"));
  EXPECT_THAT(refusal_with("/progress/epoch_seconds", scalar(-1.0)), mentions("epoch_seconds"));
  EXPECT_THAT(refusal_with("/progress/learning_rate", scalar(kInfinity)), mentions("learning_rate"));
  EXPECT_THAT(refusal_with("/run/data_digest", text("ff")), mentions("16 hexadecimal digits"));
}

TEST_F(HandmadeCheckpoint, IsRefusedWithAValueThatIsNotFinite) {
  for (const char* path : {"/parameters/a/bias", "/statistics/a/mean", "/optimizer/velocity/a/bias"}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      EXPECT_THAT(refusal_with(path, array<float>({3}, {1, value, 2})), mentions(path, "finite"));
    }
  }
}

TEST_F(HandmadeCheckpoint, IsRefusedWithArraysOrDigestsThatItCannotHave) {
  EXPECT_THAT(refusal_with("/parameters/conv1/weight", scalar(std::int64_t{1})), mentions("/parameters/conv1/weight"));
  EXPECT_THAT(refusal_with("/more", scalar(1.0)), mentions("do not belong to a checkpoint"));
  EXPECT_THAT(refusal(good(), [](std::string& lines) { lines.front() ^= 1; }), mentions("'/format_version'"));
  EXPECT_THAT(refusal(good(), [](std::string& lines) { lines += "x"; }), mentions("'/run/digests'"));
  EXPECT_THAT(refusal(good(), [](std::string& lines) { lines.clear(); }), mentions("digest"));
  EXPECT_THAT(refusal(good(), [](std::string& lines) { lines.resize(lines.find(" /run/versions") - 16); }),
              mentions("'/run/versions'"));
}

TEST_F(HandmadeCheckpoint, NamesTheMissingFile) {
  EXPECT_THAT(thrown_by([&] { load_checkpoint(folder_.file("none.h5")); }),
              reports(ErrorSource::checkpoint, folder_.file("none.h5")));
}

TEST(LoadCheckpoint, RefusesAChangeOfAnyByte) {
  const ScratchFolder folder;
  const std::string path = write_checkpoint(folder.path(), {sample_state()});
  const auto whole = read_file_bytes(path);
  for (std::size_t at = 0; at < whole.size(); at += 137) {
    auto damaged = whole;
    damaged[at] ^= std::byte{0xFF};
    overwrite(path, damaged);
    EXPECT_THAT(
        thrown_by([&] { load_checkpoint(path); }),
        reports(ErrorSource::checkpoint, path + "': it is damaged: its SHA-256 is not the one in its manifest"));
  }
}

TEST(LoadCheckpoint, RestoresEveryBitOfAStateInMultipleFiles) {
  const ScratchFolder folder;
  auto shares = shares_of(sample_state(), 3);
  shares[1].progress.epoch_seconds *= 2;  // by the clock of the rank that wrote it
  shares[2].versions += ", another processor";
  const LoadedCheckpoint loaded = load_checkpoint(write_checkpoint(folder.path(), shares));
  expect_equal_bits(loaded.state, sample_state());
  EXPECT_EQ(folder.entries(), 4u);
}

TEST(LoadCheckpoint, RefusesFilesOfDifferentStates) {
  const auto refusal = [](auto change) {
    const ScratchFolder folder;
    auto shares = shares_of(sample_state(), 3);
    change(shares[1]);
    const std::string path = write_checkpoint(folder.path(), shares);
    const Error error = thrown_by([&] { load_checkpoint(path); });
    EXPECT_EQ(error.source(), ErrorSource::checkpoint);
    return std::string(error.what());
  };
  EXPECT_THAT(refusal([](TrainState& share) { ++share.progress.seed; }), mentions("are not of one checkpoint"));
  EXPECT_THAT(refusal([](TrainState& share) { share.model += " "; }), mentions("are not of one checkpoint"));
  EXPECT_THAT(refusal([](TrainState& share) { share.parameters = sample_state().parameters; }),
              mentions("'/parameters/conv1/bias' is in more than one of"));
}

TEST(LoadCheckpoint, RefusesAManifestOfOtherFiles) {
  const auto refusal = [](auto change) {
    const ScratchFolder folder;
    const std::string path = write_checkpoint(folder.path(), {sample_state()});
    Manifest manifest = parse_manifest(read_file_bytes(manifest_path(path)));
    change(manifest);
    overwrite(manifest_path(path), bytes_of(manifest_text(manifest)));
    const Error error = thrown_by([&] { load_checkpoint(path); });
    EXPECT_EQ(error.source(), ErrorSource::checkpoint);
    return std::string(error.what());
  };
  EXPECT_THAT(refusal([](Manifest& manifest) { ++manifest.step; }), mentions("belongs to another checkpoint"));
  EXPECT_THAT(refusal([](Manifest& manifest) { manifest.files.clear(); }), mentions("belongs to another checkpoint"));
  EXPECT_THAT(refusal([](Manifest& manifest) { manifest.files.front().name = "../step-00000042.h5"; }),
              mentions("belongs to another checkpoint"));
  EXPECT_THAT(refusal([](Manifest& manifest) { manifest.files.push_back(manifest.files.front()); }),
              mentions("belongs to another checkpoint"));
  EXPECT_THAT(refusal([](Manifest& manifest) { ++manifest.files.front().bytes; }), mentions("its manifest has"));
}

TEST(LoadCheckpoint, RefusesAChangeOfAnyByteOfAFileWithoutManifest) {
  const ScratchFolder folder;
  const auto whole = checkpoint_file_bytes(sample_state());
  const std::string path = folder.file("best.h5");
  for (std::size_t at = 0; at < whole.size(); at += 37) {
    auto damaged = whole;
    damaged[at] ^= std::byte{0x01};
    overwrite(path, damaged);
    EXPECT_EQ(thrown_by([&] { load_checkpoint(path); }).source(), ErrorSource::checkpoint) << at;
    overwrite(path, std::span(whole).first(at));
    EXPECT_EQ(thrown_by([&] { load_checkpoint(path); }).source(), ErrorSource::checkpoint) << at;
  }
}

TEST(LoadCheckpoint, NeedsASealOfAFileWithoutManifestWhichTheUserMayAdd) {
  const ScratchFolder folder;
  auto bytes = checkpoint_file_bytes(sample_state());
  bytes.resize(bytes.size() - 8);
  overwrite(folder.file("old.h5"), bytes);
  EXPECT_THAT(thrown_by([&] { load_checkpoint(folder.file("old.h5")); }).what(),
              mentions("old.h5' has no seal", "inspect '" + folder.file("old.h5") + "' --seal"));
  seal_checkpoint(folder.file("old.h5"), folder.file("new.h5"));
  expect_equal_bits(load_checkpoint(folder.file("new.h5")).state, sample_state());
  const std::string shares = write_checkpoint(folder.path(), shares_of(sample_state(), 3));
  seal_checkpoint(shares, folder.file("one.h5"));
  EXPECT_EQ(read_file_bytes(folder.file("one.h5")), read_file_bytes(folder.file("new.h5")));
}

TEST(LoadCheckpoint, LoadsAFileWithoutItsManifestButNoneThatIsMarkedBad) {
  const ScratchFolder folder;
  std::filesystem::rename(write_checkpoint(folder.path(), {sample_state()}), folder.file("best.h5"));
  expect_equal_bits(load_checkpoint(folder.file("best.h5")).state, sample_state());
  std::filesystem::rename(folder.file("best.h5"), folder.file("best.h5.bad"));
  EXPECT_THAT(thrown_by([&] { load_checkpoint(folder.file("best.h5.bad")); }).what(), mentions("was found damaged"));
}

}  // namespace
}  // namespace tutti
