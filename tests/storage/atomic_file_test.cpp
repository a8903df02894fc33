#include "tutti/storage/atomic_file.hpp"

#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <string_view>

namespace tutti {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251);
  return bytes;
}

// Runs in a child process, whose limits end with it. The write must fail, report the error and clean up.
int save_error_with_size_limit(const std::string& path, std::size_t size, rlim_t limit) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit file_size{limit, limit};
    if (::setrlimit(RLIMIT_FSIZE, &file_size) != 0) ::_exit(3);
    try {
      write_atomically(path, pattern(size));
      ::_exit(0);
    } catch (const Error& error) {
      const bool clear = std::string_view(error.what()).find("ulimit -f") != std::string_view::npos;
      ::_exit(error.source() == ErrorSource::save && clear ? 1 : 2);
    }
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(AtomicFile, ReadsBackWhatItWrote) {
  const ScratchFolder folder;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3} << 20}) {
    write_atomically(folder.file("f"), pattern(size));
    EXPECT_EQ(read_file_bytes(folder.file("f")), pattern(size));
  }
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(AtomicFile, IsWrittenAndVerifiedInPieces) {
  const ScratchFolder folder;
  const std::vector<std::byte> bytes = pattern(std::size_t{20} << 20);
  AtomicFile file(folder.file("f"));
  file.append(bytes);
  file.verify(bytes);
  file.commit();
  EXPECT_EQ(read_file_bytes(folder.file("f")), bytes);
}

TEST(AtomicFile, IsRemovedWhenTheDiskReturnsOtherBytes) {
  const ScratchFolder folder;
  write_atomically(folder.file("f"), bytes_of("precious"));
  for (const std::size_t written : {std::size_t{3} << 20, std::size_t{1000}}) {  // another byte, or too few
    std::vector<std::byte> bytes = pattern(written);
    EXPECT_THAT(thrown_by([&] {
                  AtomicFile file(folder.file("f"));
                  file.append(bytes);
                  bytes.resize(std::size_t{3} << 20);
                  bytes[2'500'000] ^= std::byte{1};
                  file.verify(bytes);
                  file.commit();
                }),
                reports(ErrorSource::save, "differs from what was written; check the disk"));
  }
  EXPECT_EQ(read_file_bytes(folder.file("f")), bytes_of("precious"));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(AtomicFile, ReplacesTheOldFileWithoutAffectingOpenReaders) {
  const ScratchFolder folder;
  write_atomically(folder.file("f"), bytes_of("old"));
  std::filesystem::create_hard_link(folder.file("f"), folder.file("link"));
  write_atomically(folder.file("f"), bytes_of("new"));
  EXPECT_EQ(read_file_bytes(folder.file("f")), bytes_of("new"));
  EXPECT_EQ(read_file_bytes(folder.file("link")), bytes_of("old"));
}

TEST(AtomicFile, WritesInTheCurrentFolderWhenThePathNamesNone) {
  const ScratchFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  write_atomically("bare", bytes_of("x"));
  std::filesystem::current_path(before);
  EXPECT_EQ(read_file_bytes(folder.file("bare")), bytes_of("x"));
}

TEST(AtomicFile, KeepsTheOldFileAndLeavesNoOtherWhenWritingFails) {
  const ScratchFolder folder;
  write_atomically(folder.file("f"), bytes_of("precious"));
  EXPECT_EQ(save_error_with_size_limit(folder.file("f"), 100000, 4096), 1);
  EXPECT_EQ(read_file_bytes(folder.file("f")), bytes_of("precious"));
  EXPECT_EQ(folder.entries(), 1u);
  EXPECT_EQ(save_error_with_size_limit(folder.file("f"), 100, 4096), 0);
  EXPECT_EQ(read_file_bytes(folder.file("f")), pattern(100));
}

TEST(AtomicFile, LeavesNoTemporaryFileWhenTheNameBelongsToAFolder) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.file("taken"));
  EXPECT_THAT(thrown_by([&] { write_atomically(folder.file("taken"), bytes_of("x")); }),
              reports(ErrorSource::save, folder.file("taken"), "remove or rename the folder"));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(AtomicFile, NamesTheRemedyWhenTheFolderIsMissing) {
  const ScratchFolder folder;
  const Error error = thrown_by([&] { write_atomically(folder.file("no/f"), bytes_of("x")); });
  EXPECT_EQ(error.source(), ErrorSource::save);
  EXPECT_EQ(error.exit_status(), ExitStatus::cannot_save);
  EXPECT_THAT(error.what(), mentions("No such file or directory", "make the folder first"));
}

TEST(AtomicFile, IgnoresTheTemporaryFilesOfAKilledProcess) {
  const ScratchFolder folder;
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size() - 1), 0);
  const std::string leftover =
      folder.file("f") + ".tmp." + host.data() + "." + std::to_string(static_cast<long>(::getpid()));
  write_atomically(leftover, bytes_of("half"));
  write_atomically(folder.file("f"), bytes_of("whole"));
  EXPECT_EQ(read_file_bytes(folder.file("f")), bytes_of("whole"));
  EXPECT_EQ(read_file_bytes(leftover), bytes_of("half"));
  EXPECT_EQ(folder.entries(), 2u);
}

TEST(AtomicFile, FollowsAndKeepsSymbolicLinks) {
  namespace fs = std::filesystem;
  const ScratchFolder folder;
  fs::create_directory(folder.file("far"));
  write_atomically(folder.file("far/f"), bytes_of("old"));
  fs::create_symlink("far/f", folder.file("link"));
  fs::create_symlink(folder.file("link"), folder.file("link of a link"));
  fs::create_symlink("far/new", folder.file("dangling"));
  write_atomically(folder.file("link of a link"), bytes_of("through two"));
  write_atomically(folder.file("dangling"), bytes_of("made"));
  for (const char* link : {"link", "link of a link", "dangling"})
    EXPECT_TRUE(fs::is_symlink(folder.file(link))) << link;
  EXPECT_EQ(read_file_bytes(folder.file("far/f")), bytes_of("through two"));
  EXPECT_EQ(read_file_bytes(folder.file("far/new")), bytes_of("made"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("far")), {}), 2);
  EXPECT_EQ(folder.entries(), 4u);
}

TEST(AtomicFile, WritesToDevicesAndPipesAndNeverReplacesThem) {
  namespace fs = std::filesystem;
  const ScratchFolder folder;
  fs::create_symlink("/dev/null", folder.file("null"));
  fs::create_symlink("/dev/full", folder.file("full"));
  write_atomically(folder.file("null"), bytes_of("x"));
  EXPECT_THAT(thrown_by([&] { write_atomically(folder.file("full"), bytes_of("x")); }).what(), mentions("free space"));
  EXPECT_TRUE(fs::is_symlink(folder.file("null")) && fs::is_symlink(folder.file("full")));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));

  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(thrown_by([&] { write_atomically(pipe, bytes_of("x")); }).what(),
              mentions("start what reads from it first"));
  const Descriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  write_atomically(pipe, bytes_of("piped"));
  std::vector<std::byte> got(8);
  got.resize(static_cast<std::size_t>(::read(reader.get(), got.data(), got.size())));
  EXPECT_EQ(got, bytes_of("piped"));
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(folder.entries(), 3u);
}

// For example /dev/stdout redirected to a file.
TEST(AtomicFile, AppendsToAnOpenFileBehindALinkOfProc) {
  const ScratchFolder folder;
  const Descriptor open(::open(folder.file("f").c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(::write(open.get(), "first ", 6), 6);
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(open.get()), folder.file("link"));
  write_atomically(folder.file("link"), bytes_of("second "));
  ASSERT_EQ(::write(open.get(), "third", 5), 5);
  EXPECT_EQ(read_file_bytes(folder.file("f")), bytes_of("first second third"));
  EXPECT_EQ(folder.entries(), 2u);
}

TEST(AtomicFile, RefusesToReadMissingFilesAndFolders) {
  const ScratchFolder folder;
  EXPECT_THAT(thrown_by([&] { read_file_bytes(folder.file("none")); }), reports(ErrorSource::io, folder.file("none")));
  EXPECT_EQ(thrown_by([&] { read_file_bytes(folder.path()); }).source(), ErrorSource::io);
}

}  // namespace
}  // namespace tutti
