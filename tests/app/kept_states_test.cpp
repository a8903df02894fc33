// --keep-steps: a run that loses ranks continues from the state in the memory of its hosts, if that belongs to its
// history and is intact. tools/run does so by itself (tests/tools/run_test.py).

#include "tutti/base/digest.hpp"

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;
using testing::Not;

const char* const kOptions =
    "--data synthetic:256x1x8x8:4 --model mlp --batch-size 64 --parts 4 --threads 1 --epochs 3 --checkpoint-every end";

// The folders of kept states of the run in `out`.
std::vector<fs::path> kept_of(const std::string& out) {
  const auto stem = fmt::format("tutti_kept-{}-{:016x}-", ::geteuid(), hash64(fs::canonical(out).string()));
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().starts_with(stem)) folders.push_back(entry.path());
  }
  return folders;
}

ChildResult train(int ranks, const std::string& out, const std::string& more) {
  return run_trainer(ranks, with(words_of(kOptions), with(words_of(more), {"--out", out})));
}

// Keeps the state of every other step, and loses a rank in step 8, when at least that of step 4 is there.
void lose_a_rank(const std::string& out, const std::string& more = "") {
  const ChildResult lost = train(2, out, "--keep-steps 2 --rehearse kill:rank=1,step=8 " + more);
  ASSERT_NE(lost.status, 0);
  ASSERT_EQ(kept_of(out).size(), 1U) << lost.err;
}

nlohmann::json last_launch(const std::string& out) {
  nlohmann::json last;
  std::ifstream lines(out + "/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(R"({"event":"run")")) last = nlohmann::json::parse(line);
  }
  return last;
}

// Continues to the result of a run that lost nothing, from a step of these, and leaves nothing in memory.
void expect_continued(const std::string& out, const std::vector<std::int64_t>& begins, const ChildResult& result) {
  static const std::string whole = [] {
    const ScratchFolder folder;
    return last_word(train(2, folder.path(), "").err, "weights ");
  }();
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(last_word(result.err, "weights "), whole);
  const auto launch = last_launch(out);
  EXPECT_EQ(std::ranges::count(begins, launch.at("step").get<std::int64_t>()), 1) << launch.at("step");
  EXPECT_EQ(launch.contains("resumed_from"), launch.at("step") > 0);
  EXPECT_THAT(kept_of(out), IsEmpty());
}

TEST(KeptStates, AreContinuedOnAnyNumberOfRanks) {
  for (const int ranks : {0, 2, 3}) {
    const ScratchFolder folder;
    ASSERT_NO_FATAL_FAILURE(lose_a_rank(folder.path()));
    expect_continued(folder.path(), {4, 6}, train(ranks, folder.path(), "--resume"));
    EXPECT_THAT(last_launch(folder.path()).at("resumed_from"), testing::StartsWith("/dev/shm/tutti_kept-"));
  }
}

TEST(KeptStates, AreReplacedByTheNewestCheckpoint) {
  const ScratchFolder folder;
  const ScratchFolder copy;
  ASSERT_NO_FATAL_FAILURE(lose_a_rank(folder.path()));
  const fs::path kept = kept_of(folder.path()).front();
  fs::copy(kept, copy.path());
  EXPECT_EQ(train(2, folder.path(), "--resume --steps 7").status, 0);
  EXPECT_THAT(kept_of(folder.path()), IsEmpty()) << "of a launch that kept none";
  fs::create_directory(kept);
  fs::permissions(kept, fs::perms::owner_all);
  fs::copy(copy.path(), kept);
  expect_continued(folder.path(), {7}, train(2, folder.path(), "--resume --steps 0"));
}

TEST(KeptStates, AreKeptAsOftenAsCostsAPercent) {
  const ScratchFolder folder;
  const ChildResult result = train(2, folder.path(), "--keep-steps auto");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, mentions("at most 1 % of the time", "state kept in memory"));  // one, in so short a run
  EXPECT_THAT(kept_of(folder.path()), IsEmpty());
}

TEST(KeptStates, ThatAreDamagedAreSkipped) {
  const ScratchFolder folder;
  ASSERT_NO_FATAL_FAILURE(lose_a_rank(folder.path()));
  std::string newest;
  for (const auto& entry : fs::directory_iterator(kept_of(folder.path()).front())) {
    if (entry.path().extension() == ".h5") newest = std::max(newest, entry.path().string());
  }
  std::fstream(newest, std::ios::in | std::ios::out | std::ios::binary).seekp(5000).write("damaged", 7);
  const ChildResult result = train(2, folder.path(), "--resume");
  expect_continued(folder.path(), {2, 4}, result);
  EXPECT_THAT(result.err, mentions("skipped '" + newest, "damaged"));
}

TEST(KeptStates, AreContinuedWhereNoCheckpointIsIntact) {
  const ScratchFolder folder;
  ASSERT_NO_FATAL_FAILURE(lose_a_rank(folder.path(), "--checkpoint-every 3steps"));
  for (const auto& file : fs::directory_iterator(folder.path() + "/checkpoints")) {
    if (file.path().extension() == ".h5") fs::resize_file(file.path(), file.file_size() - 1);
  }
  expect_continued(folder.path(), {4, 6}, train(2, folder.path(), "--resume"));
}

// A launch with other options may have trained other weights after the step at which it began; an audit may have found
// that states are wrong.
TEST(KeptStates, ThatAreNotOfTheRunsHistoryAreNotUsed) {
  const auto after = [](const std::string& record, const std::vector<std::int64_t>& begins) {
    const ScratchFolder folder;
    ASSERT_NO_FATAL_FAILURE(lose_a_rank(folder.path()));
    std::ofstream(folder.file("metrics.jsonl"), std::ios::app) << record << "\n";
    expect_continued(folder.path(), begins, train(2, folder.path(), "--resume"));
  };
  after(R"({"event":"run","configuration":"lr = 7","step":6,"hash":"ab"})", {4, 6});
  after(R"({"event":"run","configuration":"lr = 7","step":1,"hash":"ab"})", {0});
  after(R"({"event":"audit","step":7,"repeats":true,"right_at":5})", {4});
  after(R"({"event":"audit","step":7,"repeats":false,"right_at":5})", {4, 6});
  const ScratchFolder folder;  // of a run that was removed
  ASSERT_NO_FATAL_FAILURE(lose_a_rank(folder.path()));
  fs::remove(folder.file("metrics.jsonl"));
  expect_continued(folder.path(), {0}, train(2, folder.path(), "--resume --keep-steps 100"));
}

TEST(KeptStates, ThatMayHoldWrongResultsAreRemoved) {
  const ScratchFolder folder;
  const ChildResult result = train(2, folder.path(),
                                   "--keep-steps 1 --audit-every 1 --rehearse "
                                   "wrong:rank=1,steps=6-12,layer=dense1,pass=backward,kind=stuck,element=9");
  EXPECT_EQ(result.status, 87) << result.err;
  EXPECT_THAT(kept_of(folder.path()), IsEmpty());
}

TEST(KeptStates, AreNotReadFromFoldersThatOthersCanWrite) {
  const ScratchFolder folder;
  ASSERT_NO_FATAL_FAILURE(lose_a_rank(folder.path()));
  const fs::path kept = kept_of(folder.path()).front();
  fs::permissions(kept, fs::perms::all);
  EXPECT_THAT(train(2, folder.path(), "--resume --keep-steps 1"), ends(73, "--keep-steps", kept.string()));
  fs::remove_all(kept);
}

TEST(KeptStates, NeedANumberOfStepsOrAuto) {
  for (const char* text : {"0", "-1", "2.5", "often"}) {
    EXPECT_THAT(run_trainer({"--keep-steps", text}), ends(64, "--keep-steps " + std::string(text), "auto or off"));
  }
}

}  // namespace
}  // namespace tutti::test
