#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/whole_file.hpp"

#include "checkpoint/sample_state.hpp"
#include "checkpoint/state_equality.hpp"
#include "support/overwrite.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>

namespace tutti {
namespace {

using testing::HasSubstr;

template <class T>
std::function<void(ArrayImage&, const std::string&)> scalar(T value) {
  return
      [value](ArrayImage& image, const std::string& name) { image.add(name, Shape{}, std::span<const T>(&value, 1)); };
}

std::function<void(ArrayImage&, const std::string&)> text(std::string value) {
  return [value = std::move(value)](ArrayImage& image, const std::string& name) { image.add_text(name, value); };
}

std::function<void(ArrayImage&, const std::string&)> sums(std::array<std::int64_t, 4> values) {
  return [values](ArrayImage& image, const std::string& name) {
    image.add(name, Shape{4}, std::span<const std::int64_t>(values));
  };
}

// A checkpoint written array by array, so that each can be left out or replaced.
class HandmadeCheckpoint : public testing::Test {
 protected:
  using Contents = std::map<std::string, std::function<void(ArrayImage&, const std::string&)>>;

  static Contents good() {
    return {{"/format_version", scalar(std::int32_t{1})},
            {"/progress/epoch", scalar(std::int64_t{1})},
            {"/progress/step_in_epoch", scalar(std::int64_t{2})},
            {"/progress/step", scalar(std::int64_t{10})},
            {"/progress/epoch_sums", sums({5, 6, 7, 0})},
            {"/progress/epoch_seconds", scalar(1.5)},
            {"/run/configuration", text("")},
            {"/run/model", text("")},
            {"/run/versions", text("")},
            {"/run/data_digest", text("00000000000000ff")}};
  }

  std::string write(const Contents& contents) const {
    ArrayImage image;
    for (const auto& [name, add] : contents) add(image, name);
    write_whole(folder_.file("hand.h5"), image.finish());
    return folder_.file("hand.h5");
  }

  std::string refusal(const Contents& contents) const {
    const Error error = thrown_by([&] { load_checkpoint(write(contents)); });
    EXPECT_EQ(error.source(), ErrorSource::checkpoint);
    EXPECT_THAT(error.what(), HasSubstr(folder_.file("hand.h5")));
    return error.what();
  }

  std::string refusal_with(const std::string& name,
                           const std::function<void(ArrayImage&, const std::string&)>& content) const {
    Contents contents = good();
    contents[name] = content;
    return refusal(contents);
  }

  ScratchFolder folder_;
};

TEST_F(HandmadeCheckpoint, LoadsAsTheFormatSays) {
  const TrainState state = load_checkpoint(write(good()));
  EXPECT_EQ(
      state.progress,
      (TrainProgress{.epoch = 1, .step_in_epoch = 2, .step = 10, .epoch_sums = {5, 6, 7, 0}, .epoch_seconds = 1.5}));
  EXPECT_EQ(state.data_digest, 255u);
  EXPECT_TRUE(state.parameters.empty());
}

TEST_F(HandmadeCheckpoint, IsRefusedWithoutAnyOneOfItsFields) {
  for (const auto& [name, add] : good()) {
    Contents contents = good();
    contents.erase(name);
    EXPECT_THAT(refusal(contents), HasSubstr(name));
  }
}

TEST_F(HandmadeCheckpoint, IsRefusedWithAFieldOfAnotherType) {
  for (const auto& [name, add] : good()) {
    EXPECT_THAT(refusal_with(name, scalar(std::uint8_t{1})), HasSubstr(name));
  }
}

TEST_F(HandmadeCheckpoint, IsRefusedWithNumbersThatNoRunReaches) {
  EXPECT_THAT(refusal_with("/format_version", scalar(std::int32_t{2})), HasSubstr("format version 2"));
  EXPECT_THAT(refusal_with("/progress/epoch", scalar(std::int64_t{-1})), HasSubstr("negative"));
  EXPECT_THAT(refusal_with("/progress/step", scalar(std::int64_t{-1})), HasSubstr("negative"));
  EXPECT_THAT(refusal_with("/progress/step_in_epoch", scalar(std::int64_t{11})), HasSubstr("the 10 steps in all"));
  EXPECT_THAT(refusal_with("/progress/epoch_sums", sums({5, 8, 7, 0})), HasSubstr("8 correct of 7 samples"));
  EXPECT_THAT(refusal_with("/progress/epoch_sums", sums({5, 6, 7, -1})), HasSubstr("negative"));
  EXPECT_THAT(refusal_with("/progress/epoch_seconds", scalar(std::numeric_limits<double>::quiet_NaN())),
              HasSubstr("epoch_seconds"));
  EXPECT_THAT(refusal_with("/run/data_digest", text("ff")), HasSubstr("16 hexadecimal digits"));
}

TEST_F(HandmadeCheckpoint, IsRefusedWithAParameterThatIsNoF32) {
  EXPECT_THAT(refusal_with("/parameters/conv1/weight", scalar(std::int64_t{1})), HasSubstr("/parameters/conv1/weight"));
}

TEST_F(HandmadeCheckpoint, SaysWhichFileIsMissing) {
  const Error error = thrown_by([&] { load_checkpoint(folder_.file("none.h5")); });
  EXPECT_EQ(error.source(), ErrorSource::checkpoint);
  EXPECT_THAT(error.what(), HasSubstr(folder_.file("none.h5")));
}

TEST_F(HandmadeCheckpoint, IsRefusedWithAnyByteThatItsManifestDoesNotKnow) {
  const auto world = make_solo_world();
  CheckpointStore(folder_.path()).save(*world, sample_state());
  const std::string path = folder_.file("step-00000042.h5");
  const auto whole = read_whole(path);
  for (std::size_t at = 0; at < whole.size(); at += 137) {
    auto damaged = whole;
    damaged[at] ^= std::byte{0xFF};
    overwrite(path, damaged);
    const Error error = thrown_by([&] { load_checkpoint(path); });
    EXPECT_EQ(error.source(), ErrorSource::checkpoint);
    EXPECT_THAT(error.what(), HasSubstr(path + "': its digest is not what its manifest says"));
  }
}

TEST_F(HandmadeCheckpoint, LoadsWhenItWasTakenWithoutItsManifest) {
  const auto world = make_solo_world();
  CheckpointStore(folder_.path()).save(*world, sample_state());
  std::filesystem::rename(folder_.file("step-00000042.h5"), folder_.file("best.h5"));
  expect_equal_bits(load_checkpoint(folder_.file("best.h5")), sample_state());
}

}  // namespace
}  // namespace tutti
