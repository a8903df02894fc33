// Checkpoints that somebody changed with care: seal and checksums are those of what they hold. Each is refused, or
// holds exactly what it says; and none makes the reader crash, hang, or ask for more memory than a little multiple of
// its files.

#include "tutti/base/crc32c.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/sha256.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"

#include "checkpoint/victim.hpp"
#include "support/allocation_watch.hpp"
#include "support/lone_child.hpp"
#include "support/thrown.hpp"

#include <array>
#include <cstring>
#include <filesystem>

namespace tutti {
namespace {

namespace fs = std::filesystem;

const std::string kSeal = "  \"seal\": ";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// With the seal that such words have.
std::vector<std::byte> sealed(std::string words) {
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(words.data()), words.size());
  words += fmt::format("{}\"{}\"\n}}\n", kSeal, digest_text(digest("manifest", bytes)));
  return bytes_of(words);
}

std::span<std::byte> place_of(std::vector<std::byte>& image, const StoredArray& array) {
  return std::span(image).subspan(static_cast<std::size_t>(array.offset), static_cast<std::size_t>(array.bytes));
}

template <class T>
std::uint64_t digest_as(const std::string& name, std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return digest(name, std::span<const T>(values));
}

std::uint64_t digest_of(const StoredArray& array, std::span<const std::byte> bytes) {
  const std::string name = array.name.substr(array.name.find('/', 1) + 1);
  switch (array.type) {
    case StoredType::f32:
      return digest_as<float>(name, bytes);
    case StoredType::f64:
      return digest_as<double>(name, bytes);
    case StoredType::i32:
      return digest_as<std::int32_t>(name, bytes);
    case StoredType::i64:
      return digest_as<std::int64_t>(name, bytes);
    default:
      return digest_as<std::uint8_t>(name, bytes.first(bytes.size() - 1));
  }
}

// All digests of an image's arrays made anew, in the image and in its manifest.
void forge_digests(Manifest& manifest, ManifestFile& file, std::vector<std::byte>& image) {
  std::map<std::string, std::uint64_t> digests;
  std::uint64_t sum = 0;
  for (const StoredArray& array : file.arrays) {
    if (array.name == "/run/digests") continue;
    const std::uint64_t one = digest_of(array, place_of(image, array));
    digests[array.name] = one;
    sum += one;
    if (manifest.files.size() == 1 && array.name.starts_with("/parameters/")) manifest.weights += one;
  }
  std::string lines;
  for (const auto& [name, one] : digests) lines += digest_text(one) + " " + name + "\n";
  lines += digest_text(sum) + " all\n";
  const auto list = std::ranges::find(file.arrays, "/run/digests", &StoredArray::name);
  std::memcpy(place_of(image, *list).data(), lines.data(), lines.size());
}

class HostileBytes : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { largest_allocation = 0; }
  void TearDown() override {
    victim_.tell(testing::UnitTest::GetInstance()->current_test_info()->name(), GetParam());
    std::size_t largest = 0;
    for (const auto& [name, bytes] : victim_.files()) largest = std::max(largest, bytes.size());
    EXPECT_LT(largest_allocation, 4 * largest + (std::size_t{1} << 16));
  }
  void judge(const std::string& change, const std::vector<std::byte>& manifest) {
    victim_.put(victim_.manifest_name(), manifest);
    victim_.loads(change, manifest);
  }

  Victim victim_{victim_shares(GetParam())};
  Manifest good_ = parse_manifest(victim_.manifest());
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

TEST_P(HostileBytes, InTheWordsOfASealedManifestAreRefusedOrTrue) {
  const std::string words(text_of(victim_.manifest()).substr(0, text_of(victim_.manifest()).rfind(kSeal)));
  for (std::uint32_t number = 0; number < cases_; ++number) {
    Draw draw(number, "words");
    std::string changed = words;
    for (std::size_t left = 1 + draw.below(2); left > 0; --left) changed = change_text(changed, draw);
    judge(fmt::format("case {}", number), sealed(changed));
  }
}

// A table as this program would write it, of arrays that lie elsewhere or are something else.
void change_table(ManifestFile& file, std::vector<std::byte>& image, Draw& draw) {
  StoredArray& array = draw.one_of(file.arrays);
  const StoredArray& model = draw.one_of(file.arrays);
  switch (draw.below(8)) {
    case 0:
      array.offset = static_cast<std::int64_t>(draw.below(image.size() + 16));
      break;
    case 1:
      array.bytes = static_cast<std::int64_t>(draw.below(image.size() + 16));
      break;
    case 2:
      array.shape = model.shape;
      break;
    case 3:
      array.type = model.type;
      break;
    case 4:
      array.name = draw.below(2) == 0 ? model.name : array.name + draw.one_of(kNumbers);
      break;
    case 5:
      std::swap(array.offset, draw.one_of(file.arrays).offset);
      break;
    case 6:
      std::swap(array, draw.one_of(file.arrays));
      break;
    default:
      file.arrays.push_back(StoredArray(model));
      file.arrays.back().name += "x";
      file.arrays.back().offset = static_cast<std::int64_t>(draw.below(2048));
  }
}

// Makes the checksums of an image's arrays anew, where they can have any.
void recount(ManifestFile& file, std::vector<std::byte>& image) {
  const auto size = std::ssize(image);
  for (StoredArray& array : file.arrays) {
    if (array.offset <= size && array.bytes <= size - array.offset) array.crc32c = crc32c(place_of(image, array));
  }
}

TEST_P(HostileBytes, InTablesWithTheirChecksumsAreRefusedOrTrue) {
  for (std::uint32_t number = 0; number < cases_; ++number) {
    Draw draw(number, "tables");
    Manifest manifest = good_;
    ManifestFile& file = draw.one_of(manifest.files);
    auto image = victim_.files().at(file.file);
    for (std::size_t left = 1 + draw.below(3); left > 0; --left) change_table(file, image, draw);
    recount(file, image);
    if (draw.below(50) == 0) manifest.files.push_back(draw.one_of(manifest.files));
    judge(fmt::format("case {}", number), bytes_of(manifest_text(manifest)));
  }
}

TEST_P(HostileBytes, InFilesWithTheirChecksumsAreRefusedOrTrue) {
  for (std::uint32_t number = 0; number < cases_; ++number) {
    Draw draw(number, "content");
    Manifest manifest = good_;
    ManifestFile& file = draw.one_of(manifest.files);
    auto image = victim_.files().at(file.file);
    for (std::size_t left = 1 + draw.below(3); left > 0; --left) {
      const auto into = draw.below(4) == 0 ? std::span(image) : place_of(image, draw.one_of(file.arrays));
      const std::size_t at = draw.below(into.size());
      std::ranges::copy(draw.bytes(draw.length(std::min<std::size_t>(16, into.size() - at))), into.begin() + at);
    }
    const std::size_t care = draw.below(4);
    if (care > 1) {
      manifest.weights = manifest.files.size() == 1 ? 0 : manifest.weights;
      forge_digests(manifest, file, image);
    }
    if (care > 0) recount(file, image);
    file.sha256 = sha256_text(image);
    victim_.put(file.file, image);
    judge(fmt::format("case {}", number), bytes_of(manifest_text(manifest)));
    victim_.restore(file.file);
  }
  EXPECT_GT(victim_.harmless(), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, HostileBytes, testing::Values("tiny", "lenet", "several"),
                         [](const auto& shape) { return std::string(shape.param); });

TEST(HostileManifest, OfAnySizeAndDepthIsRefused) {
  Victim victim({sample_state()});
  const std::string words(text_of(victim.manifest()).substr(0, text_of(victim.manifest()).rfind(kSeal)));
  const auto refuses = [&](const std::string& change, const std::string& text) {
    const auto manifest = sealed(text);
    victim.put(victim.manifest_name(), manifest);
    EXPECT_FALSE(victim.loads(change, manifest));
  };
  constexpr std::size_t kMany = 5'000'000;
  std::string deep;
  for (std::size_t depth = 0; depth < kMany / 8; ++depth) deep += "{\"a\":[";
  for (const std::string& blob :
       {std::string(kMany, '['), deep, "\"" + std::string(kMany, 'x') + "\"", "\"" + std::string(kMany, '\\') + "\"",
        std::string(kMany, '7'), std::string(kMany, '\n'), std::string(kMany, '\0')}) {
    refuses("a blob for everything", blob);
    for (const std::string field : {"\"versions\": ", "\"files\": ", "\"arrays\": ", "\"shape\": ", "\"bytes\": "}) {
      std::string text = words;
      refuses("a blob for " + field, text.insert(text.find(field) + field.size(), blob));
    }
  }
  // Each array is as long as the file, so that summing them up would take for ever.
  Manifest manifest = parse_manifest(victim.manifest());
  const auto& image = victim.files().at(manifest.files.front().file);
  manifest.files.front().arrays.clear();
  for (int i = 0; i < 100'000; ++i) {
    manifest.files.front().arrays.push_back({.name = fmt::format("/parameters/{}", i),
                                             .type = StoredType::text,
                                             .shape = {},
                                             .bytes = std::ssize(image),
                                             .crc32c = crc32c(image)});
  }
  victim.put(victim.manifest_name(), bytes_of(manifest_text(manifest)));
  EXPECT_FALSE(victim.loads("arrays on top of each other"));
  victim.restore(victim.manifest_name());
  fs::resize_file(victim.path_of(victim.manifest_name()), std::uintmax_t{1} << 36);
  EXPECT_FALSE(victim.loads("a manifest of 64 GiB"));
  victim.tell("of any size and depth", "tiny");
}

TEST(LoneFile, ThatIsDamagedIsNeverTriedByAResume) {
  const ScratchFolder folder;
  const auto world = make_solo_world();
  const StoredImage right = checkpoint_image(sample_state());
  const std::string path = folder.file(image_name(sample_state().progress.step));
  std::map<int, int> outcomes;
  for (std::uint32_t number = 0; number < mutants() / 5; ++number) {
    Draw draw(number, "lone");
    auto image = right.bytes;
    const std::size_t at = draw.below(image.size());
    std::ranges::copy(draw.bytes(draw.length(std::min<std::size_t>(64, image.size() - at))),
                      image.begin() + static_cast<std::ptrdiff_t>(at));
    overwrite(path, image);
    ++outcomes[outcome_in_child([&] { return checkpoint_image(load_checkpoint(path).state).bytes == right.bytes; })];
    testing::internal::CaptureStderr();
    const Error error = thrown_by([&] { CheckpointStore(folder.path()).newest(*world, Log{}); });
    testing::internal::GetCapturedStderr();
    EXPECT_EQ(error.source(), ErrorSource::checkpoint);
    EXPECT_NE(std::string(error.what()).find("has its manifest"), std::string::npos) << error.what();
  }
  for (const auto& [outcome, count] : outcomes) {
    std::printf("lone file: %s: %d\n", name_of_outcome(outcome).c_str(), count);
  }
  EXPECT_EQ(outcomes[refused] + outcomes[read_right], static_cast<int>(mutants() / 5));
}

}  // namespace
}  // namespace tutti
