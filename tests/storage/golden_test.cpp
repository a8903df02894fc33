#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "storage/sample_state.hpp"
#include "storage/state_equality.hpp"
#include "storage/written_checkpoint.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string golden(const std::string& format, const std::string& name) {
  return fmt::format("{}/format-{}/{}", TUTTI_GOLDEN_FOLDER, format, name);
}

TEST(GoldenCheckpoint, OfAnEarlierBuildLoadsBitForBitWithItsManifestOrOnceItIsSealed) {
  expect_equal_bits(load_checkpoint(golden("2-unsealed", "step-00000042.h5")).state, sample_state());
  const ScratchFolder folder;
  fs::copy_file(golden("2-unsealed", "step-00000042.h5"), folder.file("best.h5"));
  EXPECT_THAT(thrown_by([&] { load_checkpoint(folder.file("best.h5")); }).what(), mentions("has no seal"));
  seal_checkpoint(folder.file("best.h5"), folder.file("sealed.h5"));
  EXPECT_EQ(read_file_bytes(folder.file("sealed.h5")), read_file_bytes(golden("2", "step-00000042.h5")));
}

TEST(GoldenCheckpoint, LoadsBitForBitWithAnyManifestAndWithout) {
  expect_equal_bits(load_checkpoint(golden("2", "step-00000042.h5")).state, sample_state());
  const ScratchFolder folder;
  fs::copy_file(golden("2", "step-00000042.h5"), folder.file("step-00000042.h5"));
  fs::copy_file(golden("3", "step-00000042.json"), folder.file("step-00000042.json"));
  expect_equal_bits(load_checkpoint(folder.file("step-00000042.h5")).state, sample_state());
  fs::copy_file(golden("2", "step-00000042.h5"), folder.file("best.h5"));
  expect_equal_bits(load_checkpoint(folder.file("best.h5")).state, sample_state());
}

TEST(GoldenCheckpoint, IsMadeAgainByteForByte) {
  for (const auto& [name, bytes] : checkpoint_files({sample_state()})) {
    EXPECT_EQ(bytes, read_file_bytes(golden(name.ends_with(".json") ? "3" : "2", name))) << name;
  }
}

TEST(GoldenCheckpoint, OfAnEarlierFormatIsRefusedByNameWithAndWithoutItsManifest) {
  const ScratchFolder folder;
  fs::copy_file(golden("1", "step-00000042.h5"), folder.file("best.h5"));
  for (const auto& [path, read] :
       {std::pair(golden("1", "step-00000042.h5"), "2 and 3"), std::pair(folder.file("best.h5"), "2")}) {
    EXPECT_THAT(
        thrown_by([&] { seal_checkpoint(path, folder.file("sealed.h5")); }),
        reports(ErrorSource::checkpoint, fmt::format("it has format 1, this program reads {}: resume with the version "
                                                     "of this program",
                                                     read)));
  }
}

}  // namespace
}  // namespace tutti
