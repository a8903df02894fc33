#include "tutti/storage/atomic_file.hpp"

#include "support/overwrite.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/size_limit.hpp"
#include "support/thrown.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

namespace tutti {
namespace {

void put(const std::string& path, std::string_view text) { overwrite(path, std::as_bytes(std::span(text))); }

std::string content(const std::string& path) {
  const std::vector<std::byte> bytes = read_file_bytes(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(LineFile, AppendsToAnExistingFile) {
  const ScratchFolder folder;
  LineFile(folder.file("f")).append("one");
  LineFile(folder.file("f")).append("two");
  EXPECT_EQ(content(folder.file("f")), "one\ntwo\n");
}

TEST(LineFile, IsTruncatedOnRequest) {
  const ScratchFolder folder;
  put(folder.file("f"), "of another run\nand a torn li");
  LineFile file(folder.file("f"), EarlierLines::dropped);
  file.append("one");
  file.append("two");
  EXPECT_EQ(content(folder.file("f")), "one\ntwo\n");
}

TEST(LineFile, WritesToAPipeWithoutWaitingForItsReader) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("f").c_str(), 0600), 0);
  EXPECT_THAT(thrown_by([&] { LineFile(folder.file("f")); }).what(), mentions("start what reads from it first"));
  const Descriptor reader(::open(folder.file("f").c_str(), O_RDONLY | O_NONBLOCK));
  LineFile(folder.file("f"), EarlierLines::dropped).append("one");
  std::string got(8, ' ');
  got.resize(static_cast<std::size_t>(::read(reader.get(), got.data(), got.size())));
  EXPECT_EQ(got, "one\n");
}

TEST(LineFile, EndsALineThatAKilledProcessHasCutShort) {
  const ScratchFolder folder;
  put(folder.file("f"), "one\ntw");
  LineFile file(folder.file("f"));
  file.append("three");
  file.append("four");
  EXPECT_EQ(content(folder.file("f")), "one\ntw\nthree\nfour\n");
}

TEST(LineFile, ContinuesInANewLineAfterADiskWasFull) {
  const ScratchFolder folder;
  LineFile file(folder.file("f"));
  file.append("one");
  for (int attempt = 0; attempt < 2; ++attempt) {  // the second finds the line torn, and cannot even end it
    const SizeLimit limit(6);
    EXPECT_THAT(thrown_by([&] { file.append("two"); }), reports(ErrorSource::save, folder.file("f"), "ulimit -f"));
  }
  {
    const SizeLimit limit(7);  // room for the end of the torn line, and no more
    thrown_by([&] { file.append("three"); });
  }
  file.append("four");
  EXPECT_EQ(content(folder.file("f")), "one\ntw\nfour\n");
}

TEST(LineFile, ReportsWhyItCannotWriteAndTheRemedy) {
  const ScratchFolder folder;
  EXPECT_THAT(thrown_by([&] { LineFile(folder.file("no/f")); }).what(), mentions("make the folder first"));
  LineFile full("/dev/full");
  EXPECT_THAT(thrown_by([&] { full.append("x"); }).what(), mentions("No space left on device; free space"));
}

}  // namespace
}  // namespace tutti
