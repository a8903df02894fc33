#include "tutti/data/unpack.hpp"

#include "tutti/storage/whole_file.hpp"

#include "data/written_tar.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace tutti {
namespace {

using testing::Bytes;
using testing::bytes_of;
using testing::gzipped;
using ::testing::HasSubstr;
using testing::sum_up;
using testing::tar_header;
using testing::tar_of;
using testing::TarMember;
using testing::TemporaryFolder;

class Unpack : public ::testing::Test {
 protected:
  Unpack() { std::filesystem::create_directory(out()); }

  std::string out() const { return folder_.text() + "/out"; }
  void unpack_of(const Bytes& archive, const std::vector<PackedFile>& files = {{"in/a", 1 << 20}}) const {
    folder_.write("archive", archive);
    unpack(folder_.text() + "/archive", files, out());
  }
  std::string refusal_of(const Bytes& archive) const {
    const Error error = thrown_by([&] { unpack_of(archive); });
    EXPECT_EQ(error.source(), ErrorSource::input);
    EXPECT_THAT(error.what(), HasSubstr("/archive'"));
    return error.what();
  }
  Bytes read(const std::string& name) const {
    const auto bytes = read_whole(out() + "/" + name);
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
    return {begin, begin + bytes.size()};
  }
  std::size_t files_out() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(out()), {}));
  }

  TemporaryFolder folder_;
};

TEST_F(Unpack, WritesWhatIsAskedForOfRawAndCompressedArchives) {
  const Bytes large(3'000'001, 7);
  const Bytes archive =
      tar_of({{"in/", {}, '5'}, {"in/b", bytes_of("other")}, {"in/a", bytes_of("text")}, {"in/c", large}});
  for (const Bytes& form : {archive, gzipped(archive)}) {
    unpack_of(form, {{"in/a", 4}, {"in/c", 4'000'000}});
    EXPECT_EQ(read("a"), bytes_of("text"));
    EXPECT_EQ(read("c"), large);
    EXPECT_EQ(files_out(), 2u);
  }
}

TEST_F(Unpack, ReadsWhatTheSystemsTarWrites) {
  folder_.write("in/a", bytes_of("as tar writes it"));
  folder_.write(std::string("in/") + std::string(120, 'x'), bytes_of("a long name"));
  for (const char* format : {"gnu", "ustar", "pax", "v7"}) {
    const std::string name = std::string(format) == "v7" || std::string(format) == "ustar" ? "in/a" : "in";
    const std::string command = "cd " + folder_.text() + " && tar --format=" + format + " -czf made.tar.gz " + name;
    ASSERT_EQ(std::system(command.c_str()), 0);
    unpack(folder_.text() + "/made.tar.gz", {{"in/a", 100}}, out());
    EXPECT_EQ(read("a"), bytes_of("as tar writes it")) << format;
  }
}

TEST_F(Unpack, JoinsAPathThatIsCutInTwo) {
  unpack_of(tar_of({{"deep/a", bytes_of("x"), '0', "in/folders"}}), {{"in/folders/deep/a", 1}});
  EXPECT_EQ(read("a"), bytes_of("x"));
}

TEST_F(Unpack, RefusesPathsThatLeadOutWhoeverAskedForThem) {
  for (const char* path : {"/in/a", "../in/a", "in/../../a", ".."}) {
    EXPECT_THAT(refusal_of(tar_of({{path, bytes_of("x")}})), HasSubstr("would lie outside the archive's folder"));
  }
  EXPECT_EQ(files_out(), 0u);
}

TEST_F(Unpack, RefusesLinksAndDevices) {
  for (const char type : {'1', '2', '3', '4', '6', '7', 'S'}) {
    EXPECT_THAT(refusal_of(tar_of({{"in/a", {}, type}})), HasSubstr("'in/a' is a link or a device"));
  }
  EXPECT_EQ(files_out(), 0u);
}

TEST_F(Unpack, RefusesAFileLongerThanItMayBe) {
  const Error error = thrown_by([&] { unpack_of(tar_of({{"in/a", Bytes(11)}}), {{"in/a", 10}}); });
  EXPECT_THAT(error.what(), HasSubstr("'in/a' has 11 bytes, more than the 10 that it may have"));
  EXPECT_EQ(files_out(), 0u);
}

TEST_F(Unpack, RefusesAHeaderThatPromisesMoreThanTheArchiveHolds) {
  for (const std::string& size : {std::string("77777777777"), std::string("\x80\0\0\0\0\0\0\1\0\0\0\0", 12)}) {
    Bytes archive = tar_of({{"in/a", bytes_of("x")}});
    testing::put(archive, 124, size);
    Bytes header(archive.begin(), archive.begin() + 512);
    sum_up(header);
    std::copy(header.begin(), header.end(), archive.begin());
    EXPECT_THAT(refusal_of(archive), HasSubstr("'in/a' is longer than the archive can be"));
  }
}

TEST_F(Unpack, RefusesDamagedAndCutArchives) {
  Bytes archive = tar_of({{"in/b", Bytes(600)}, {"in/a", bytes_of("text")}});
  const Bytes cut(archive.begin(), archive.begin() + 1800);
  EXPECT_THAT(refusal_of(cut), HasSubstr("the content ends here; 512 bytes were expected from byte 1536 on"));
  archive[1536 + 3] ^= 1U;
  EXPECT_THAT(refusal_of(archive), HasSubstr("malformed at byte 1536: the header of a member"));
  const Bytes packed = gzipped(tar_of({{"in/a", Bytes(90'000, 3)}}));
  EXPECT_THAT(refusal_of(Bytes(packed.begin(), packed.end() - 20)), HasSubstr("damaged or cut off"));
  EXPECT_EQ(files_out(), 0u);
}

TEST_F(Unpack, RefusesAnArchiveThatLacksAFileOrHasItTwice) {
  EXPECT_THAT(refusal_of(tar_of({{"in/b", {}}})), HasSubstr("cannot be unpacked: it lacks 'in/a'"));
  EXPECT_THAT(refusal_of(tar_of({{"in/a", {}}, {"in/a", {}}})), HasSubstr("it holds 'in/a' twice"));
}

}  // namespace
}  // namespace tutti
