// Checkpoints with accidental changes of bytes: each change is refused or harmless. Changes of a checkpoint's own files
// are all refused; of the manifest, those of the digests that only audits read are harmless.

#include "storage/damaged_checkpoint.hpp"

#include <filesystem>

namespace tutti {
namespace {

namespace fs = std::filesystem;

class ChangedBytes : public testing::TestWithParam<const char*> {
 protected:
  void TearDown() override {
    checkpoint_.report(testing::UnitTest::GetInstance()->current_test_info()->name(), GetParam());
  }
  bool is_manifest(const std::string& name) const { return name == checkpoint_.manifest_name(); }
  // Where the manifest begins to list the files.
  std::size_t files_in_manifest() const {
    const std::span bytes(checkpoint_.manifest());
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()).find("\"files\"");
  }

  DamagedCheckpoint checkpoint_{shares_of_shape(GetParam())};
};

TEST_P(ChangedBytes, ThatAreMissingAtTheEndAreDetected) {
  for (const auto& [name, bytes] : checkpoint_.files()) {
    std::size_t counted = 0;
    for (std::size_t length = bytes.size(); length-- > 0;) {
      const bool counts = is_manifest(name) || length % 512 == 0 || length + 1024 >= bytes.size();
      if (!counts || counted++ % stride() != 0) continue;
      fs::resize_file(checkpoint_.path_of(name), length);
      EXPECT_FALSE(checkpoint_.loads(fmt::format("{} cut to {} bytes", name, length)));
    }
    checkpoint_.restore(name);
  }
}

TEST_P(ChangedBytes, OfTheManifestAreDetectedOrHarmlessAndThoseAtTheBeginningOfFilesAllDetected) {
  for (const auto& [name, bytes] : checkpoint_.files()) {
    const std::size_t front = is_manifest(name) ? bytes.size() : std::min<std::size_t>(2048, bytes.size());
    for (std::size_t at = 0; at < front; at += stride()) {
      for (const unsigned mask : {0x01u, 0x80u, 0xFFu}) {
        const std::byte changed = bytes[at] ^ static_cast<std::byte>(mask);
        checkpoint_.patch(name, at, std::span(&changed, 1));
        const bool loads = checkpoint_.loads(fmt::format("{} at {} ^ {:02x}", name, at, mask));
        EXPECT_TRUE(!loads || (is_manifest(name) && at < files_in_manifest())) << name << " at " << at;
      }
      checkpoint_.restore(name, at, 1);
    }
  }
}

TEST_P(ChangedBytes, OfAnyNumberAndPositionAreDetected) {
  const std::uint32_t cases = GetParam() == std::string("lenet") ? mutants() / 2 : 6 * mutants();
  for (std::uint32_t number = 0; number < cases; ++number) {
    Draw draw(number, "changed bytes");
    const auto& [name, bytes] = draw.one_of(checkpoint_.files());
    const std::size_t at = draw.below(bytes.size());
    const auto changed = draw.bytes(draw.length(std::min<std::size_t>(4096, bytes.size() - at)));
    checkpoint_.patch(name, at, changed);
    const bool same = std::ranges::equal(changed, std::span(bytes).subspan(at, changed.size()));
    const bool loads =
        checkpoint_.loads(fmt::format("case {}: {} bytes at {} of {}", number, changed.size(), at, name));
    EXPECT_TRUE(loads == same || is_manifest(name)) << number;
    checkpoint_.restore(name, at, changed.size());
  }
}

TEST_P(ChangedBytes, OfWholeFilesThatAreAddedRemovedOrSwappedAreDetected) {
  TrainState other = shares_of_shape(GetParam()).front();
  other.progress.best.correct += 1;
  const CheckpointFiles others = checkpoint_files({other});
  for (const auto& [name, bytes] : checkpoint_.files()) {
    const auto refuses = [&, &name = name](const std::string& what) {
      EXPECT_FALSE(checkpoint_.loads(name + what));
      checkpoint_.restore(name);
    };
    for (std::uint32_t number = 0; number < mutants() / 25; ++number) {
      Draw draw(number, "appended bytes");
      auto longer = bytes;
      std::ranges::copy(draw.bytes(draw.length(4096)), std::back_inserter(longer));
      checkpoint_.put(name, longer);
      refuses(" with more behind it");
    }
    checkpoint_.put(name, {});
    refuses(" emptied");
    fs::remove(checkpoint_.path_of(name));
    refuses(" missing");
    fs::remove(checkpoint_.path_of(name));
    fs::create_directory(checkpoint_.path_of(name));
    refuses(" a folder");
    fs::remove(checkpoint_.path_of(name));
    fs::create_symlink(name, checkpoint_.path_of(name));
    refuses(" a link to itself");
    for (const auto& [from, other_bytes] : checkpoint_.files()) {
      if (from == name) continue;
      checkpoint_.put(name, other_bytes);
      refuses(" replaced by " + from);
      checkpoint_.put(from, bytes);
      checkpoint_.put(name, other_bytes);
      EXPECT_FALSE(checkpoint_.loads(name + " swapped with " + from));
      checkpoint_.restore(from);
      checkpoint_.restore(name);
    }
    if (others.contains(name)) {
      checkpoint_.put(name, others.at(name));
      refuses(" of another run");
    }
  }
  ++other.progress.step;
  const CheckpointFiles next = checkpoint_files({other});
  checkpoint_.put(checkpoint_.manifest_name(), next.at(manifest_name(other.progress.step)));
  EXPECT_FALSE(checkpoint_.loads("the manifest of another step"));
  checkpoint_.put(checkpoint_file_name(shares_of_shape(GetParam()).front().progress.step),
                  next.at(checkpoint_file_name(other.progress.step)));
  EXPECT_FALSE(checkpoint_.loads("both files of another step"));
  for (const auto& [name, bytes] : checkpoint_.files()) checkpoint_.restore(name);
  for (const auto& [name, bytes] : next) checkpoint_.put(name, bytes);
  EXPECT_TRUE(checkpoint_.loads("with another checkpoint in the folder"));
}

INSTANTIATE_TEST_SUITE_P(Shapes, ChangedBytes, testing::Values("tiny", "lenet", "shards"),
                         [](const auto& shape) { return std::string(shape.param); });

}  // namespace
}  // namespace tutti
