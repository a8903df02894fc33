// Malicious changes of manifests, and damaged files without a manifest. Each is refused, or loads
// exactly the saved state. None makes the reader crash, hang, or allocate more memory than a small multiple of its
// files.

#include "tutti/storage/checkpoint_store.hpp"

#include "storage/damaged_checkpoint.hpp"
#include "support/allocation_watch.hpp"
#include "support/lone_child.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <array>
#include <filesystem>

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class HostileBytes : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { largest_allocation = 0; }
  void TearDown() override {
    checkpoint_.report(testing::UnitTest::GetInstance()->current_test_info()->name(), GetParam());
    std::size_t largest = 0;
    for (const auto& [name, bytes] : checkpoint_.files()) largest = std::max(largest, bytes.size());
    EXPECT_LT(largest_allocation, 4 * largest + (std::size_t{1} << 16));
  }
  void check(const std::string& change, const std::vector<std::byte>& manifest) {
    checkpoint_.put(checkpoint_.manifest_name(), manifest);
    checkpoint_.loads(change);
  }

  DamagedCheckpoint checkpoint_{shares_of_shape(GetParam())};
  std::uint32_t cases_ = GetParam() == std::string("lenet") ? mutants() / 4 : 4 * mutants();
};

constexpr std::array kNumbers{"-1",
                              "0",
                              "1",
                              "7",
                              "4294967295",
                              "4294967296",
                              "4611686018427387904",
                              "9223372036854775807",
                              "9223372036854775808",
                              "18446744073709551615",
                              "99999999999999999999999",
                              "1e3",
                              "1.0",
                              "007",
                              "+1",
                              "",
                              "null",
                              "[[[["};
constexpr std::array kStrings{"\"\"",        "\"/\"",          "\"/a\"",   "\"../x\"", "\"/run/../x\"",
                              "\"\\u0000\"", "\"\\ud800\"",    "\"\\\"\"", "\"f32\"",  "\"text\"",
                              "\"float\"",   "\"/run/model\"", "\"\\",     "1"};

// One word, line or piece of the text is another.
std::string change_text(std::string text, Draw& draw) {
  const std::size_t at = draw.below(text.size());
  const auto line = [&](std::size_t position) {
    const std::size_t begin = text.rfind('\n', position) + 1;
    return std::pair(begin, std::min(text.find('\n', begin), text.size() - 1) + 1 - begin);
  };
  switch (draw.below(8)) {
    case 0: {
      const std::size_t begin = text.find_first_of("0123456789", at);
      const std::size_t end = text.find_first_not_of("0123456789", begin);
      if (end == std::string::npos) break;
      const std::string near = std::to_string(std::strtoull(&text[begin], nullptr, 10) + draw.below(17) - 8);
      return text.replace(begin, end - begin, draw.below(3) == 0 ? near : draw.one_of(kNumbers));
    }
    case 1: {
      const std::size_t begin = text.find('"', at);
      const std::size_t end = text.find('"', begin + 1);
      if (begin == std::string::npos || end == std::string::npos) break;
      return text.replace(begin, end + 1 - begin, draw.one_of(kStrings));
    }
    case 2:
      return text.erase(line(at).first, line(at).second);
    case 3:
      return text.insert(line(at).first, text.substr(line(at).first, line(at).second));
    case 4: {
      const auto [from, length] = line(draw.below(text.size()));
      const std::string moved = text.substr(from, length);
      text.erase(from, length);
      return text.insert(line(std::min(at, text.size() - 1)).first, moved);
    }
    case 5:
      return text.insert(at, text_of(draw.bytes(draw.length(64))));
    case 6:
      return text.insert(at, text.substr(draw.below(text.size()), draw.length(512)));
    default:
      break;
  }
  text[at] = static_cast<char>(draw.below(256));
  return text;
}

TEST_P(HostileBytes, InAManifestAreRefusedOrHarmless) {
  const std::string words(text_of(checkpoint_.manifest()));
  for (std::uint32_t number = 0; number < cases_; ++number) {
    Draw draw(number, "words");
    std::string changed = words;
    for (std::size_t left = 1 + draw.below(2); left > 0; --left) changed = change_text(changed, draw);
    check(fmt::format("case {}", number), bytes_of(changed));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, HostileBytes, testing::Values("tiny", "lenet", "shards"),
                         [](const auto& shape) { return std::string(shape.param); });

TEST(HostileManifest, OfAnySizeAndDepthIsRefused) {
  DamagedCheckpoint checkpoint({sample_state()});
  const std::string words(text_of(checkpoint.manifest()));
  const auto refuses = [&](const std::string& change, const std::string& text) {
    checkpoint.put(checkpoint.manifest_name(), bytes_of(text));
    EXPECT_FALSE(checkpoint.loads(change));
  };
  constexpr std::size_t kMany = 1'000'000;
  std::string deep;
  for (std::size_t depth = 0; depth < kMany / 8; ++depth) deep += "{\"a\":[";
  for (const std::string& blob :
       {std::string(kMany, '['), deep, "\"" + std::string(kMany, 'x') + "\"", "\"" + std::string(kMany, '\\') + "\"",
        std::string(kMany, '7'), std::string(kMany, '\0')}) {
    refuses("a blob for everything", blob);
    for (const std::string field : {"\"weights\": ", "\"files\": ", "\"bytes\": "}) {
      std::string text = words;
      refuses("a blob for " + field, text.insert(text.find(field) + field.size(), blob));
    }
  }
  checkpoint.restore(checkpoint.manifest_name());
  fs::resize_file(checkpoint.path_of(checkpoint.manifest_name()), std::uintmax_t{1} << 36);
  EXPECT_FALSE(checkpoint.loads("a manifest of 64 GiB"));
  checkpoint.report("of any size and depth", "tiny");
}

// Manifest and SHA-256 are made again for the changed file, so that only its own seal and digests can find the change.
TEST(FileWithAForgedManifest, IsRefusedOrHarmless) {
  const ScratchFolder folder;
  const TrainState state = sample_state();
  const std::vector<std::byte> right = checkpoint_file_bytes(state);
  const std::string path = folder.file(checkpoint_file_name(state.progress.step));
  std::map<int, int> outcomes;
  for (std::uint32_t number = 0; number < mutants() / 2; ++number) {
    Draw draw(number, "forged");
    auto image = right;
    for (int change = 0; change < 3; ++change) draw.one_of(image) = draw.bytes(1).front();
    overwrite(path, image);
    overwrite(manifest_path(path), bytes_of(manifest_text(manifest_of(state, image, sha256_text(image), {}))));
    ++outcomes[outcome_in_child([&] { return checkpoint_file_bytes(read_checkpoint(path).loaded.state) == right; })];
  }
  for (const auto& [outcome, count] : outcomes) {
    std::printf("forged manifest: %s: %d\n", name_of_outcome(outcome).c_str(), count);
  }
  EXPECT_EQ(outcomes[refused] + outcomes[read_right], static_cast<int>(mutants() / 2));
}

TEST(FileWithoutManifest, ThatIsDamagedIsNeverTriedByAResume) {
  const ScratchFolder folder;
  const auto world = make_solo_world();
  const std::vector<std::byte> right = checkpoint_file_bytes(sample_state());
  const std::string path = folder.file(checkpoint_file_name(sample_state().progress.step));
  std::map<int, int> outcomes;
  for (std::uint32_t number = 0; number < mutants() / 5; ++number) {
    Draw draw(number, "lone");
    auto image = right;
    const std::size_t at = draw.below(image.size());
    std::ranges::copy(draw.bytes(draw.length(std::min<std::size_t>(64, image.size() - at))),
                      image.begin() + static_cast<std::ptrdiff_t>(at));
    overwrite(path, image);
    ++outcomes[outcome_in_child([&] { return checkpoint_file_bytes(load_checkpoint(path).state) == right; })];
    testing::internal::CaptureStderr();
    const Error error = thrown_by([&] { CheckpointStore(folder.path()).newest(*world, Log{}); });
    testing::internal::GetCapturedStderr();
    EXPECT_THAT(error, reports(ErrorSource::checkpoint, "is intact"));
  }
  for (const auto& [outcome, count] : outcomes) {
    std::printf("lone file: %s: %d\n", name_of_outcome(outcome).c_str(), count);
  }
  EXPECT_EQ(outcomes[refused] + outcomes[read_right], static_cast<int>(mutants() / 5));
}

}  // namespace
}  // namespace tutti
