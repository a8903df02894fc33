#include "tutti/storage/partial_file.hpp"

#include "tutti/storage/whole_file.hpp"

#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string_view>

namespace tutti {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string text_in(const std::string& path) {
  const std::vector<std::byte> bytes = read_whole(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(PartialFile, GoesOnWithWhatAnEarlierOneHasLeft) {
  const ScratchFolder folder;
  {
    PartialFile file(folder.file("f"));
    EXPECT_EQ(file.bytes(), 0);
    file.append(bytes_of("one "));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("f")));
  PartialFile file(folder.file("f"));
  EXPECT_EQ(file.bytes(), 4);
  file.append(bytes_of("two"));
  EXPECT_EQ(text_in(file.temporary()), "one two");
  file.keep();
  EXPECT_EQ(text_in(folder.file("f")), "one two");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(PartialFile, BeginsAnewWhenItIsCleared) {
  const ScratchFolder folder;
  PartialFile file(folder.file("f"));
  file.append(bytes_of("wrong"));
  file.clear();
  EXPECT_EQ(file.bytes(), 0);
  file.append(bytes_of("right"));
  file.keep();
  EXPECT_EQ(text_in(folder.file("f")), "right");
}

TEST(PartialFile, IsWrittenByOneAtATime) {
  const ScratchFolder folder;
  {
    const PartialFile first(folder.file("f"));
    const Error error = thrown_by([&] { PartialFile second(folder.file("f")); });
    EXPECT_EQ(error.source(), ErrorSource::save);
    EXPECT_THAT(error.what(), HasSubstr("f.part'; wait for it"));
  }
  EXPECT_EQ(PartialFile(folder.file("f")).bytes(), 0);
  EXPECT_EQ(folder.entries(), 0u) << "what is empty goes";
}

TEST(PartialFile, SaysWhyItCannotBeSaved) {
  const Error error = thrown_by([] { PartialFile file("/no/such/folder/f"); });
  EXPECT_EQ(error.source(), ErrorSource::save);
  EXPECT_THAT(error.what(), HasSubstr("make the folder first"));
}

}  // namespace
}  // namespace tutti
