#include "tutti/base/random.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/seal.hpp"

#include "support/overwrite.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

namespace tutti {
namespace {

std::vector<std::uint8_t> numbered(std::size_t count) {
  std::vector<std::uint8_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
  return values;
}

// Like write_atomically, but without flushing.
void write_fast(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// Writes two arrays of rows, with small objects before, between and after them.
void write_sample(const std::string& path, std::int64_t rows) {
  const std::array<std::int32_t, 3> labels{1, 2, 3};
  RowFileWriter file(path);
  file.add_text("/format", "sample");
  file.begin_rows("/train/images", Shape{rows, 2, 3});
  const auto bytes = numbered(static_cast<std::size_t>(rows) * 6);
  for (std::size_t at = 0; at < bytes.size(); at += 6) file.append_rows(std::span(bytes).subspan(at, 6));
  file.add("/train/labels", Shape{3}, labels);
  file.begin_rows("/test/images", Shape{1, 2, 3});
  file.append_rows(std::span(bytes).first(6));
  file.add("/mean", Shape{1}, std::array<double, 1>{0.5});
  file.commit();
}

TEST(RowFile, GivesBackItsRowsAndSmallArrays) {
  const ScratchFolder folder;
  const std::string path = folder.file("f.h5");
  constexpr std::int64_t kRows = 3'000'000;  // three chunks, the last not full
  write_sample(path, kRows);
  EXPECT_EQ(folder.entries(), 1u);
  check_seal(path);
  const ArrayFile file(path);
  EXPECT_EQ(file.read_text("/format"), "sample");
  EXPECT_EQ(file.shape("/train/images"), (Shape{kRows, 2, 3}));
  std::vector<std::int32_t> labels(3);
  file.read("/train/labels", Shape{3}, std::span<std::int32_t>(labels));
  EXPECT_EQ(labels, (std::vector<std::int32_t>{1, 2, 3}));
  const auto all = numbered(kRows * 6);
  for (const auto& [first, count] :
       {std::pair<std::int64_t, std::int64_t>{0, 1}, {1'398'090, 30}, {kRows - 5, 5}, {7, 0}}) {
    std::vector<std::uint8_t> rows(static_cast<std::size_t>(count) * 6);
    file.read_rows("/train/images", first, count, rows);
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), all.begin() + first * 6)) << first;
  }
}

// Bytes of two arrays, as a conversion appends them, and what an unfinished finish has left.
void write_raw(const std::string& path, std::size_t bytes, std::string_view rest) {
  std::vector<std::uint8_t> raw(static_cast<std::size_t>(RawFileWriter::kAlignment), 77);
  const auto values = numbered(bytes);
  raw.insert(raw.end(), values.begin(), values.end());
  raw.insert(raw.end(), rest.begin(), rest.end());
  write_fast(path, std::as_bytes(std::span(raw)));
}

TEST(RawFile, BecomesAnHdf5FileWhoseArraysAreWhereTheyWere) {
  const ScratchFolder folder;
  const std::int64_t unit = RawFileWriter::kAlignment;
  std::vector<std::byte> first;
  for (const std::string_view rest : {"", "the rest of an earlier try"}) {
    const std::string raw = folder.file("raw");
    const std::string path = folder.file("f.h5");
    write_raw(raw, static_cast<std::size_t>(5 * unit), rest);
    const std::array<RawFileWriter::Array, 2> arrays{{{"/train/files", 4 * unit}, {"/test/files", unit}}};
    RawFileWriter file(raw, arrays);
    const std::vector<std::int64_t> ends(100'000, 7);
    file.add_text("/format", "sample");
    file.add("/train/ends", Shape{std::ssize(ends)}, ends);
    EXPECT_FALSE(std::filesystem::exists(path));
    file.commit(path);
    EXPECT_EQ(folder.entries(), 1u);
    check_seal(path);
    const ArrayFile read(path);
    EXPECT_EQ(read.read_text("/format"), "sample");
    EXPECT_EQ(read.offset("/train/files"), unit);
    EXPECT_EQ(read.offset("/test/files"), 5 * unit);
    EXPECT_EQ(read.shape("/train/files"), Shape{4 * unit});
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(5 * unit));
    read.read_rows("/train/files", 0, 4 * unit, std::span(bytes).first(static_cast<std::size_t>(4 * unit)));
    read.read_rows("/test/files", 0, unit, std::span(bytes).last(static_cast<std::size_t>(unit)));
    EXPECT_TRUE(bytes == numbered(bytes.size()));
    EXPECT_THAT(thrown_by([&] { static_cast<void>(read.offset("/train/ends")); }).what(), mentions("not of type u8"));
    if (first.empty()) first = read_file_bytes(path);
    EXPECT_TRUE(first == read_file_bytes(path));
    std::filesystem::remove(path);
  }
}

TEST(Seal, OfAnImageInMemoryLeavesOutItsFloatsAndIsIgnoredByHdf5) {
  const ScratchFolder folder;
  MemoryFileWriter writer;
  const std::vector<float> values(1000, 0.5F);
  writer.add("/a/floats", Shape{1000}, std::span<const float>(values));
  writer.add("/none", Shape{0}, std::span<const float>());
  writer.add_text("/a/text", "words");
  const std::vector<std::byte> whole = writer.finish();
  const auto floats = std::as_bytes(std::span(values));
  const auto found = std::ranges::search(whole, floats);
  ASSERT_EQ(found.size(), floats.size());
  const auto first = static_cast<std::size_t>(found.begin() - whole.begin());
  const std::string path = folder.file("f.h5");
  for (std::size_t at = 0; at < whole.size(); at += 41) {
    auto damaged = whole;
    damaged[at] ^= std::byte{4};
    overwrite(path, damaged);
    if (at >= first && at < first + floats.size()) {
      check_seal(path);
    } else {
      EXPECT_EQ(thrown_by([&] { check_seal(path); }).source(), ErrorSource::input) << at;
    }
  }
  overwrite(path, whole);
  check_seal(path);
  EXPECT_EQ(ArrayFile(path).read_text("/a/text"), "words");
}

TEST(RowFile, RefusesRowsThatItDoesNotHave) {
  const ScratchFolder folder;
  write_sample(folder.file("f.h5"), 4);
  const ArrayFile file(folder.file("f.h5"));
  std::vector<std::uint8_t> one(6);
  for (const std::int64_t first : {-1, 4, 5}) {
    EXPECT_EQ(thrown_by([&] { file.read_rows("/train/images", first, 1, one); }).source(), ErrorSource::input);
  }
  EXPECT_EQ(thrown_by([&] { file.read_rows("/train/images", 0, 2, one); }).source(), ErrorSource::input);
  EXPECT_THAT(thrown_by([&] { file.read_rows("/train/labels", 0, 1, one); }).what(), mentions("not of type u8"));
}

TEST(RowFile, IsReadByManyThreads) {
  const ScratchFolder folder;
  write_sample(folder.file("f.h5"), 500);
  const ArrayFile file(folder.file("f.h5"));
  const auto all = numbered(500 * 6);
  std::array<int, 4> right{};
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < right.size(); ++t) {
      threads.emplace_back([&, t] {
        std::vector<std::uint8_t> row(6);
        for (std::int64_t i = static_cast<std::int64_t>(t); i < 500; i += 4) {
          file.read_rows("/train/images", i, 1, row);
          right[t] += std::equal(row.begin(), row.end(), all.begin() + i * 6) ? 1 : 0;
          MemoryFileWriter().add_text("/other", "work");
        }
      });
    }
  }
  EXPECT_EQ(right, (std::array<int, 4>{125, 125, 125, 125}));
}

TEST(RowFile, AppearsOnlyWhenItIsCommitted) {
  const ScratchFolder folder;
  const std::vector<std::uint8_t> row(6);
  {
    RowFileWriter file(folder.file("f.h5"));
    file.begin_rows("/rows", Shape{2, 6});
    file.append_rows(row);
  }
  EXPECT_EQ(folder.entries(), 0u);
  RowFileWriter file(folder.file("f.h5"));
  file.begin_rows("/rows", Shape{2, 6});
  file.append_rows(row);
  EXPECT_THAT(thrown_by([&] { file.commit(); }).what(), mentions("'/rows' of 2 rows is given 1"));
}

// The disk fills up at the beginning of the file, among its rows, or at its end. The process exits as the program does:
// HDF5 used to crash at exit, where it closed files that it had failed to close before.
TEST(RowFile, LeavesNothingWhenTheDiskIsFull) {
  const ScratchFolder folder;
  for (const rlim_t bytes : {1'000u, 100'000u, 1'000'000u, 20'000'000u, 30'000'900u}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit most{bytes, bytes};
      if (::setrlimit(RLIMIT_FSIZE, &most) != 0) ::_exit(3);
      try {
        write_sample(folder.file("f.h5"), 5'000'000);
      } catch (const Error& error) {
        const std::string text = error.what();
        const bool good = error.source() == ErrorSource::save && text.find("f.h5") != std::string::npos &&
                          text.find("File too large") != std::string::npos;
        std::exit(good && folder.entries() == 0 ? 0 : 2);
      }
      ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "with room for " << bytes << " bytes";
  }
}

TEST(Seal, IsBrokenByEveryChangeOutsideTheRows) {
  const ScratchFolder folder;
  const std::string path = folder.file("f.h5");
  write_sample(path, 100);
  const auto whole = read_file_bytes(path);
  const auto pixels = numbered(600);
  const auto rows = std::as_bytes(std::span(pixels));
  const auto train = std::search(whole.begin(), whole.end(), rows.begin(), rows.end()) - whole.begin();
  int accepted = 0;
  for (std::size_t at = 0; at < whole.size(); at += at < 200 || at + 200 > whole.size() ? 1 : 29) {
    auto changed = whole;
    changed[at] ^= std::byte{0x10};
    write_fast(folder.file("g.h5"), changed);
    const bool in_train = std::cmp_greater_equal(at, train) && std::cmp_less(at, train + 600);
    try {
      check_seal(folder.file("g.h5"));
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.source(), ErrorSource::input);
      EXPECT_FALSE(in_train) << at;
    }
  }
  EXPECT_GT(accepted, 10);
  EXPECT_LE(accepted, 606 / 29 + 2);
}

TEST(Seal, IsBrokenWhereTheFileIsCutOrLonger) {
  const ScratchFolder folder;
  const std::string path = folder.file("f.h5");
  write_sample(path, 10);
  auto bytes = read_file_bytes(path);
  bytes.push_back(std::byte{0});
  write_fast(folder.file("g.h5"), bytes);
  EXPECT_THAT(thrown_by([&] { check_seal(folder.file("g.h5")); }).what(), mentions("g.h5' has no seal"));
  for (std::size_t length = 0; length < bytes.size() - 1; length += 61) {
    write_fast(folder.file("g.h5"), std::span(bytes).first(length));
    EXPECT_EQ(thrown_by([&] { check_seal(folder.file("g.h5")); }).source(), ErrorSource::input) << length;
  }
  EXPECT_EQ(thrown_by([&] { check_seal(folder.file("none.h5")); }).source(), ErrorSource::io);
}

}  // namespace
}  // namespace tutti
