// Checkpoints whose bytes were changed, without anybody's ill will: each change is refused or does no harm.

#include "storage/victim.hpp"

#include <filesystem>

namespace tutti {
namespace {

namespace fs = std::filesystem;

class ChangedBytes : public testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { victim_.tell(testing::UnitTest::GetInstance()->current_test_info()->name(), GetParam()); }
  bool is_manifest(const std::string& name) const { return name == victim_.manifest_name(); }

  Victim victim_{victim_shares(GetParam())};
};

TEST_P(ChangedBytes, ThatAreMissingAtTheEndAreMissed) {
  for (const auto& [name, bytes] : victim_.files()) {
    std::size_t counted = 0;
    for (std::size_t length = bytes.size(); length-- > 0;) {
      const bool counts = is_manifest(name) || length % 512 == 0 || length + 1024 >= bytes.size();
      if (!counts || counted++ % stride() != 0) continue;
      fs::resize_file(victim_.path_of(name), length);
      EXPECT_FALSE(victim_.loads(fmt::format("{} cut to {} bytes", name, length)));
    }
    victim_.restore(name);
  }
}

TEST_P(ChangedBytes, OfTheManifestAndInFrontAreNoticedEveryOne) {
  for (const auto& [name, bytes] : victim_.files()) {
    const std::size_t front = is_manifest(name) ? bytes.size() : std::min<std::size_t>(2048, bytes.size());
    for (std::size_t at = 0; at < front; at += stride()) {
      for (const unsigned mask : {0x01u, 0x80u, 0xFFu}) {
        const std::byte changed = bytes[at] ^ static_cast<std::byte>(mask);
        victim_.patch(name, at, std::span(&changed, 1));
        EXPECT_FALSE(victim_.loads(fmt::format("{} at {} ^ {:02x}", name, at, mask)));
      }
      victim_.restore(name, at, 1);
    }
  }
}

TEST_P(ChangedBytes, OfAnyNumberAndPlaceAreNoticed) {
  const std::uint32_t cases = GetParam() == std::string("lenet") ? mutants() / 2 : 6 * mutants();
  for (std::uint32_t number = 0; number < cases; ++number) {
    Draw draw(number, "changed bytes");
    const auto& [name, bytes] = draw.one_of(victim_.files());
    const std::size_t at = draw.below(bytes.size());
    const auto changed = draw.bytes(draw.length(std::min<std::size_t>(4096, bytes.size() - at)));
    victim_.patch(name, at, changed);
    const bool same = std::ranges::equal(changed, std::span(bytes).subspan(at, changed.size()));
    EXPECT_EQ(victim_.loads(fmt::format("case {}: {} bytes at {} of {}", number, changed.size(), at, name)), same);
    victim_.restore(name, at, changed.size());
  }
}

TEST_P(ChangedBytes, OfWholeFilesThatComeGoOrTradePlacesAreNoticed) {
  TrainState other = victim_shares(GetParam()).front();
  other.progress.best.correct += 1;
  const CheckpointFiles others = checkpoint_files({other});
  for (const auto& [name, bytes] : victim_.files()) {
    const auto refuses = [&, &name = name](const std::string& what) {
      EXPECT_FALSE(victim_.loads(name + what));
      victim_.restore(name);
    };
    for (std::uint32_t number = 0; number < mutants() / 25; ++number) {
      Draw draw(number, "appended bytes");
      auto longer = bytes;
      std::ranges::copy(draw.bytes(draw.length(4096)), std::back_inserter(longer));
      victim_.put(name, longer);
      refuses(" with more behind it");
    }
    victim_.put(name, {});
    refuses(" emptied");
    fs::remove(victim_.path_of(name));
    refuses(" missing");
    fs::remove(victim_.path_of(name));
    fs::create_directory(victim_.path_of(name));
    refuses(" a folder");
    fs::remove(victim_.path_of(name));
    fs::create_symlink(name, victim_.path_of(name));
    refuses(" a link to itself");
    for (const auto& [from, foreign] : victim_.files()) {
      if (from == name) continue;
      victim_.put(name, foreign);
      refuses(" replaced by " + from);
      victim_.put(from, bytes);
      victim_.put(name, foreign);
      EXPECT_FALSE(victim_.loads(name + " swapped with " + from));
      victim_.restore(from);
      victim_.restore(name);
    }
    if (others.contains(name)) {
      victim_.put(name, others.at(name));
      refuses(" of another run");
    }
  }
  ++other.progress.step;
  const CheckpointFiles next = checkpoint_files({other});
  victim_.put(victim_.manifest_name(), next.at(manifest_name(other.progress.step)));
  EXPECT_FALSE(victim_.loads("the manifest of another step"));
  victim_.put(checkpoint_file_name(victim_shares(GetParam()).front().progress.step),
              next.at(checkpoint_file_name(other.progress.step)));
  EXPECT_FALSE(victim_.loads("both files of another step"));
  for (const auto& [name, bytes] : victim_.files()) victim_.restore(name);
  for (const auto& [name, bytes] : next) victim_.put(name, bytes);
  EXPECT_TRUE(victim_.loads("with another checkpoint beside it"));
}

INSTANTIATE_TEST_SUITE_P(Shapes, ChangedBytes, testing::Values("tiny", "lenet", "several"),
                         [](const auto& shape) { return std::string(shape.param); });

}  // namespace
}  // namespace tutti
