// Data sets out of a network that ends at this machine.

#include "fetch/fetched_set.hpp"

#include "tutti/base/sha256.hpp"

#include "data/written_tar.hpp"
#include "fetch/fetched_file.hpp"
#include "support/child_process.hpp"
#include "support/loopback_server.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace tutti {
namespace {

using test::LoopbackServer;
using test::read_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string sha256_of(const std::string& text) { return sha256_text(std::as_bytes(std::span(text))); }

std::string long_text() {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += std::to_string(i);
  return text;
}

class FetchedSet : public ::testing::Test {
 protected:
  FetchedSet() { ::setenv("no_proxy", "127.0.0.1", 1); }

  PublishedFile file() const { return {"f", static_cast<std::int64_t>(text_.size()), sha256_of(text_)}; }
  std::string path() const { return folder_.file("f"); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_.file(name)) << text; }
  std::string fetch(const std::vector<std::string>& places) {
    return fetch_file(file(), places, folder_.path(), {.note = [this](const std::string& note) { notes_ += note; }});
  }
  Error failure(const std::vector<std::string>& places) {
    return thrown_by([&] { fetch(places); });
  }
  // Of a server that is gone.
  static std::string nobody() { return LoopbackServer().url(); }

  const std::string text_ = long_text();
  const ScratchFolder folder_;
  LoopbackServer server_;
  std::string notes_;
};

TEST_F(FetchedSet, TakesAFileThatIsAsPublished) {
  server_.serve("in/f", {text_});
  std::int64_t last = 0;
  const FetchWatch watch{.progress = [&](std::int64_t bytes) {
    EXPECT_GT(bytes, last);
    last = bytes;
  }};
  EXPECT_EQ(fetch_file(file(), {server_.url() + "in/"}, folder_.path(), watch), server_.url() + "in/");
  EXPECT_EQ(read_text(path()), text_);
  EXPECT_EQ(last, std::ssize(text_));
  EXPECT_EQ(folder_.entries(), 1u);
}

TEST_F(FetchedSet, RefusesAFileOfAnotherSum) {
  std::string other = text_;
  other[77] ^= 1;
  server_.serve("f", {other});
  const Error error = failure({server_.url()});
  EXPECT_EQ(error.source(), ErrorSource::io);
  EXPECT_THAT(error.what(), HasSubstr("has the SHA-256 " + sha256_of(other) + " instead of " + file().sha256));
  EXPECT_EQ(folder_.entries(), 0u) << "nothing of it stays";
}

TEST_F(FetchedSet, RefusesAFileOfAnotherLength) {
  server_.serve("f", {"Please log in to this network."});
  EXPECT_THAT(failure({server_.url()}).what(), HasSubstr("it sent 30 bytes instead of "));
  server_.serve("f", {text_ + "more"});
  EXPECT_THAT(failure({server_.url()}).what(), HasSubstr("it sends more than "));
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_F(FetchedSet, GoesOnWhereAConnectionBroke) {
  server_.serve("f", {.content = text_, .cut_after = 400'000, .cuts = 2});
  fetch({server_.url()});
  EXPECT_EQ(read_text(path()), text_);
  EXPECT_THAT(server_.requests(), ElementsAre("f", "f from 400000", "f from 800000"));
  EXPECT_THAT(notes_, HasSubstr("going on from byte 400000"));
}

TEST_F(FetchedSet, GoesOnWithWhatAnEarlierCallHasLeft) {
  server_.serve("f", {.content = text_, .cut_after = 0, .cuts = 100});
  write("f.part", text_.substr(0, 1000));
  EXPECT_EQ(failure({server_.url()}).source(), ErrorSource::io);
  EXPECT_EQ(read_text(path() + ".part").size(), 1000u) << "stays for the next attempt";
  server_.serve("f", {text_});
  fetch({server_.url()});
  EXPECT_EQ(read_text(path()), text_);
  EXPECT_EQ(server_.requests().back(), "f from 1000");
}

TEST_F(FetchedSet, BeginsAnewAtAServerThatCannotGoOn) {
  server_.serve("f", {.content = text_, .knows_ranges = false});
  write("f.part", text_.substr(0, 1000));
  fetch({server_.url()});
  EXPECT_EQ(read_text(path()), text_);
  EXPECT_THAT(server_.requests(), ElementsAre("f from 1000", "f"));
}

TEST_F(FetchedSet, BeginsAnewWhenWhatAnEarlierCallHasLeftWasWrong) {
  server_.serve("f", {text_});
  write("f.part", std::string(1000, 'x'));
  fetch({server_.url()});
  EXPECT_EQ(read_text(path()), text_);
  write("f.part", std::string(text_.size() + 1, 'x'));
  fetch({server_.url()});
  EXPECT_EQ(read_text(path()), text_);
}

TEST_F(FetchedSet, FinishesAFileOfWhichNothingIsMissingWithoutANetwork) {
  write("f.part", text_);
  fetch({nobody()});
  EXPECT_EQ(read_text(path()), text_);
}

TEST_F(FetchedSet, TurnsToTheNextPlace) {
  LoopbackServer cut;
  cut.serve("f", {.content = text_.substr(0, 3)});
  server_.serve("f", {text_});
  EXPECT_EQ(fetch({nobody(), server_.url() + "not/here/", cut.url(), server_.url()}), server_.url());
  EXPECT_EQ(read_text(path()), text_);
}

TEST_F(FetchedSet, SaysOfEachPlaceWhyItDidNotServe) {
  const std::string gone = nobody();
  const Error error = failure({gone, server_.url()});
  EXPECT_EQ(error.source(), ErrorSource::io);
  EXPECT_THAT(error.what(), HasSubstr("cannot fetch f: " + gone + ": "));
  EXPECT_THAT(error.what(), HasSubstr(server_.url() + ": HTTP status 404"));
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_F(FetchedSet, FetchesWhatIsMissingAndLeavesAloneWhatIsThere) {
  server_.serve("f", {text_});
  server_.serve("g", {"gg"});
  const PublishedFile g{"g", 2, sha256_of("gg")};
  const PublishedSet set{.name = "s", .places = {server_.url()}, .downloads = {file(), g}, .files = {file(), g}};
  write("f", text_);
  fetch_set(set, folder_.path(), {});
  EXPECT_THAT(server_.requests(), ElementsAre("g"));
  std::string notes;
  fetch_set(set, folder_.path(), {.note = [&](const std::string& note) { notes += note; }});
  EXPECT_THAT(notes, HasSubstr("all files of s are in '" + folder_.path() + "' already"));
  EXPECT_EQ(server_.requests().size(), 1u);

  write("g", "my own");
  const Error error = thrown_by([&] { fetch_set(set, folder_.path(), {}); });
  EXPECT_EQ(error.source(), ErrorSource::input);
  EXPECT_THAT(error.what(), HasSubstr("/g' is there, but is not the published file of 2 bytes"));
  EXPECT_EQ(read_text(folder_.file("g")), "my own");
}

TEST_F(FetchedSet, SaysWhatToPlaceWhereWhenThereIsNoNetwork) {
  const PublishedSet set{.name = "s", .places = {nobody()}, .downloads = {file()}, .files = {file()}};
  const Error error = thrown_by([&] { fetch_set(set, folder_.file("new/s"), {}); });
  EXPECT_EQ(error.source(), ErrorSource::io);
  EXPECT_THAT(error.what(), HasSubstr("put into '" + folder_.file("new/s") + "' by other means"));
  EXPECT_THAT(error.what(), HasSubstr("  f, " + std::to_string(text_.size()) + " bytes, SHA-256 " + file().sha256));
  EXPECT_THAT(error.what(), HasSubstr("which is published at\n  " + set.places[0]));
  EXPECT_THAT(error.what(), Not(HasSubstr(".part")));
  EXPECT_EQ(folder_.entries(), 0u) << "no empty folder stays that this has made";
}

// As CIFAR is published, but for its size.
class PackedSet : public FetchedSet {
 protected:
  void SetUp() override {
    const auto packed = testing::gzipped(testing::tar_of({{"in/", {}, '5'},
                                                          {"in/one.bin", testing::bytes_of(text_)},
                                                          {"in/readme", testing::bytes_of("not wanted")},
                                                          {"in/names.txt", testing::bytes_of("a\nb\n")}}));
    archive_.assign(packed.begin(), packed.end());
    set_ = {.name = "s",
            .places = {server_.url()},
            .downloads = {{"s.tar.gz", std::ssize(archive_), sha256_of(archive_)}},
            .packed_in = "in",
            .files = {{"one.bin", std::ssize(text_), sha256_of(text_)}, {"names.txt", 4096}}};
  }

  std::string archive_;
  PublishedSet set_;
};

TEST_F(PackedSet, IsUnpackedAndItsArchiveRemoved) {
  server_.serve("s.tar.gz", {archive_});
  fetch_set(set_, folder_.path(), {});
  EXPECT_EQ(read_text(folder_.file("one.bin")), text_);
  EXPECT_EQ(read_text(folder_.file("names.txt")), "a\nb\n");
  EXPECT_EQ(folder_.entries(), 2u);
  fetch_set(set_, folder_.path(), {});
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(PackedSet, IsUnpackedFromAnArchiveThatTheUserHasPlaced) {
  write("s.tar.gz", archive_);
  set_.places = {nobody()};
  fetch_set(set_, folder_.path(), {});
  EXPECT_EQ(folder_.entries(), 2u);
}

}  // namespace
}  // namespace tutti
