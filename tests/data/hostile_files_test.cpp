// Damaged and inconsistent files, drawn by seed: each is refused with an Error or, if the damage is harmless, read; and
// the readers never allocate more than a small multiple of the file's content.

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"
#include "tutti/data/open_data.hpp"

#include "data/mutator.hpp"
#include "data/written_sets.hpp"
#include "support/allocation_watch.hpp"
#include "support/scratch_folder.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

namespace tutti {
namespace {

using testing_support::append_word;
using testing_support::Bytes;
using testing_support::cifar_file;
using testing_support::gzipped;
using testing_support::idx_file;
using testing_support::idx_labels;
using testing_support::mutants;
using testing_support::Mutator;
using testing_support::open_named;
using testing_support::word_at;

// Labels need four bytes each in memory, and growing memory is copied once; the rest is for buffers of fixed size.
std::size_t allocation_bound(std::size_t content_bytes) { return 4 * content_bytes + 128 * 1024; }

struct Outcome {
  std::optional<std::int64_t> samples;  // none when refused
  std::string message;
  std::size_t largest = 0;
};

Outcome open_hostile(const ScratchFolder& folder) {
  Outcome outcome;
  largest_allocation = 0;
  try {
    outcome.samples = open_named(folder.path()).pair.train->info().samples;
  } catch (const Error& error) {
    outcome.message = error.what();
  }
  outcome.largest = largest_allocation;
  return outcome;
}

struct Hostile {
  bool is_good = false;   // valid by the format's definition
  bool is_whole = false;  // the content is not truncated
  std::size_t content_bytes = 0;
};

// Opens the folder; returns whether it was read.
bool survives(const ScratchFolder& folder, const Hostile& hostile) {
  const Outcome outcome = open_hostile(folder);
  const bool was_read = outcome.samples.has_value();
  if (hostile.is_whole) {
    EXPECT_EQ(was_read, hostile.is_good) << outcome.message;
  }
  if (!was_read) {
    EXPECT_NE(outcome.message.find(folder.path()), std::string::npos) << outcome.message;
  }
  EXPECT_LE(outcome.largest, allocation_bound(hostile.content_bytes)) << outcome.message;
  return was_read;
}

// An independent reading of the formats' definitions.
bool is_good_idx(const Bytes& images, const Bytes& labels) {
  if (images.size() < 16 || labels.size() < 8) return false;
  const bool has_channels = word_at(images, 0) == 0x804;
  if (!has_channels && word_at(images, 0) != 0x803) return false;
  const std::size_t header = has_channels ? 20 : 16;
  if (images.size() < header) return false;
  unsigned __int128 pixels = 1;
  for (std::size_t at = 4; at < header; at += 4) pixels *= word_at(images, at);
  return pixels > 0 && images.size() - header == pixels && word_at(labels, 0) == 0x801 &&
         word_at(labels, 4) == word_at(images, 4) && labels.size() - 8 == word_at(labels, 4);
}

bool is_good_cifar(const Bytes& content) {
  if (content.empty() || content.size() % 3073 != 0) return false;
  for (std::size_t at = 0; at < content.size(); at += 3073) {
    if (content[at] > 9) return false;
  }
  return true;
}

void damage_content(Mutator& mutator, Bytes& bytes, std::size_t header_words) {
  switch (mutator.below(6)) {
    case 0:
      mutator.truncate(bytes);
      break;
    case 1:
      mutator.append(bytes);
      break;
    case 2:
      mutator.change_bytes(bytes);
      break;
    case 3:
    case 4:
      mutator.change_word(bytes, header_words);
      break;
    default:
      break;
  }
}

TEST(HostileFiles, OfIdxAreRefusedOrReadWithBoundedMemory) {
  const std::uint32_t files = mutants(1500);
  int read = 0;
  for (std::uint32_t number = 0; number < files && !HasFailure(); ++number) {
    Mutator mutator(number);
    const ScratchFolder folder;
    Bytes images = mutator.once_in(2) ? idx_file({0x803, 20, 6, 5}, 600) : idx_file({0x804, 10, 3, 4, 5}, 600);
    Bytes labels = idx_labels(Bytes(word_at(images, 4), 3));
    damage_content(mutator, images, 4);
    if (mutator.once_in(3)) damage_content(mutator, labels, 2);
    Hostile hostile{is_good_idx(images, labels), true, std::max(images.size(), labels.size())};
    hostile.is_whole &= mutator.pack(images);
    hostile.is_whole &= mutator.pack(labels);
    folder.write("train-images-idx3-ubyte", images);
    folder.write("train-labels-idx1-ubyte", labels);
    SCOPED_TRACE(number);
    read += survives(folder, hostile) ? 1 : 0;
  }
  EXPECT_GT(read, static_cast<int>(files) / 15);
  EXPECT_LT(read, static_cast<int>(files) * 2 / 3);
}

TEST(HostileFiles, OfCifarAreRefusedOrReadWithBoundedMemory) {
  const std::uint32_t files = mutants(800);
  int read = 0;
  for (std::uint32_t number = 0; number < files && !HasFailure(); ++number) {
    Mutator mutator(10'000 + number);
    const ScratchFolder folder;
    Bytes labels(1 + mutator.below(4), 7);
    if (mutator.once_in(4)) labels[mutator.below(labels.size())] = static_cast<std::uint8_t>(10 + mutator.below(246));
    Bytes batch = cifar_file(labels);
    damage_content(mutator, batch, 1);
    Hostile hostile{is_good_cifar(batch), true, batch.size()};
    hostile.is_whole = mutator.pack(batch);
    folder.write("data_batch_1.bin", batch);
    SCOPED_TRACE(number);
    read += survives(folder, hostile) ? 1 : 0;
  }
  EXPECT_GT(read, static_cast<int>(files) / 16);
  EXPECT_LT(read, static_cast<int>(files) * 7 / 8);
}

TEST(HostileFiles, MayContainMuchMoreThanTheirHeaderAnnounces) {
  const ScratchFolder folder;
  folder.write("train-images-idx3-ubyte.gz", gzipped(idx_file({0x803, 2, 2, 2}, std::size_t{32} << 20)));
  folder.write("train-labels-idx1-ubyte", idx_labels({0, 1}));
  const Outcome outcome = open_hostile(folder);
  EXPECT_NE(outcome.message.find("more content than the header promises"), std::string::npos) << outcome.message;
  EXPECT_LE(outcome.largest, allocation_bound(100));
}

TEST(HostileFiles, MayAnnounceSizesOnlyPossibleWithTheBestCompression) {
  const ScratchFolder folder;
  Bytes images = idx_file({0x803, 60'000, 28, 28}, 50'000);
  folder.write("train-images-idx3-ubyte.gz", gzipped(images));
  folder.write("train-labels-idx1-ubyte", idx_labels({0}));
  const Outcome outcome = open_hostile(folder);
  EXPECT_NE(outcome.message.find("more than a file of this size can hold"), std::string::npos) << outcome.message;

  // A file of this size can contain 1.5 MB; this one contains a twentieth of that.
  RandomSequence random(1, {});
  images = idx_file({0x803, 2'000, 28, 28}, 0);
  for (int i = 0; i < 80'000; ++i) images.push_back(static_cast<std::uint8_t>(random.next()));
  folder.write("train-images-idx3-ubyte.gz", gzipped(images));
  const Outcome cut = open_hostile(folder);
  EXPECT_NE(cut.message.find("at byte 80016 of its uncompressed content: the content ends here"), std::string::npos)
      << cut.message;
  EXPECT_LE(cut.largest, 2 * images.size() + 128 * 1024);
}

}  // namespace
}  // namespace tutti
