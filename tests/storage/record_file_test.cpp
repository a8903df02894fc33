#include "tutti/storage/record_file.hpp"

#include "tutti/storage/whole_file.hpp"

#include "support/scratch_folder.hpp"
#include "support/size_limit.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::HasSubstr;

std::string content(const std::string& path) {
  const std::vector<std::byte> bytes = read_whole(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The checksums are those of TensorFlow's own writer.
const std::string kNine(
    "\x09\0\0\0\0\0\0\0\x37\xF9\x71\x39"
    "123456789"
    "\xE5\xB0\x8A\xC7",
    25);
const std::string kNone("\0\0\0\0\0\0\0\0\x29\x03\x98\x07\xD8\xEA\x82\xA2", 16);

TEST(RecordFile, FramesRecordsAsTensorFlowDoes) {
  const ScratchFolder folder;
  RecordFile file(folder.file("f"));
  file.append("123456789");
  file.append("");
  EXPECT_EQ(content(folder.file("f")), kNine + kNone);
}

TEST(RecordFile, TakesBackARecordThatADiskHasNoRoomFor) {
  const ScratchFolder folder;
  RecordFile file(folder.file("f"));
  file.append("123456789");
  {
    const SizeLimit limit(40);
    const Error error = thrown_by([&] { file.append("123456789"); });
    EXPECT_EQ(error.source(), ErrorSource::save);
    EXPECT_THAT(error.what(), HasSubstr("ulimit -f"));
  }
  EXPECT_EQ(content(folder.file("f")), kNine);
  file.append("");
  EXPECT_EQ(content(folder.file("f")), kNine + kNone);
}

TEST(RecordFile, IsAlwaysANewOne) {
  const ScratchFolder folder;
  const RecordFile file(folder.file("f"));
  EXPECT_THAT(thrown_by([&] { RecordFile again(folder.file("f")); }).what(), HasSubstr("File exists"));
  EXPECT_THAT(thrown_by([&] { RecordFile nowhere(folder.file("no/f")); }).what(), HasSubstr("make the folder first"));
}

}  // namespace
}  // namespace tutti
