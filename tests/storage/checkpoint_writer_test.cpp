#include "tutti/storage/checkpoint_writer.hpp"

#include "storage/sample_state.hpp"
#include "storage/state_equality.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <thread>

namespace tutti {
namespace {

namespace fs = std::filesystem;

class Writing : public testing::Test {
 protected:
  void save(std::int64_t step) {
    TrainState state = state_at(step);
    state.progress.best.step = 2;
    writer_->save(std::move(state));
  }
  std::vector<std::int64_t> steps() const { return store_.steps(); }

  ScratchFolder folder_;
  CheckpointStore store_{folder_.path()};
  std::optional<CheckpointWriter> writer_{std::in_place, store_, WriterOptions{.keep_checkpoints = 2}};
};

TEST_F(Writing, SavesEveryStateAndKeepsTheNewest) {
  for (std::int64_t step = 10; step <= 14; ++step) save(step);
  writer_->finish();
  EXPECT_TRUE(writer_->newest_is_saved());
  const auto reports = writer_->take_reports();
  ASSERT_EQ(reports.size(), 5u);
  for (std::int64_t i = 0; i < 5; ++i) {
    const SaveReport& report = reports[static_cast<std::size_t>(i)];
    EXPECT_EQ(report.step, 10 + i);
    EXPECT_EQ(report.failure + report.prune_failure, "");
    EXPECT_GT(report.bytes, 0);
    EXPECT_GT(report.seconds, 0);
  }
  EXPECT_TRUE(writer_->take_reports().empty());
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{13, 14}));
}

TEST_F(Writing, AlsoKeepsTheBest) {
  writer_.emplace(store_, WriterOptions{.keep_checkpoints = 2, .keep_best = true});
  for (std::int64_t step = 6; step <= 10; ++step) save(2 * step);
  writer_->finish();
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{18, 20}));
  save(2);
  save(40);
  save(41);
  writer_->finish();
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{2, 40, 41}));
}

TEST_F(Writing, TriesTheBestAgainThatCouldNotBeSaved) {
  writer_.emplace(store_, WriterOptions{.keep_checkpoints = 2, .keep_best = true});
  fs::create_directory(store_.path_of(2));
  save(2);
  while (writer_->take_reports().empty()) std::this_thread::yield();
  fs::remove(store_.path_of(2));
  for (const std::int64_t step : {10, 11, 12}) save(step);
  writer_->finish();
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{2, 11, 12}));
}

// Two later checkpoints could not be read when the run resumed.
TEST_F(Writing, NeverRemovesTheCheckpointThatItHasJustVerified) {
  for (const std::int64_t step : {30, 31, 10, 11, 12}) save(step);
  writer_->finish();
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{11, 12, 30, 31}));
}

TEST_F(Writing, RemovesTheOldestButNeverTheLastGoodOneNorTheBest) {
  for (const std::int64_t step : {2, 10, 20, 30}) save(step);
  writer_->finish();
  writer_.emplace(store_, WriterOptions{.keep_checkpoints = 0});
  for (const std::int64_t step : {2, 10, 40}) save(step);
  writer_->finish();
  ASSERT_EQ(steps(), (std::vector<std::int64_t>{2, 10, 20, 30, 40}));
  EXPECT_EQ(store_.evict_oldest({.best_step = 2, .last_step = 50}), 10);
  EXPECT_EQ(store_.evict_oldest({.last_step = 50}), 2);
  fs::resize_file(store_.path_of(40), 100);  // 30 is the last good one now
  EXPECT_EQ(store_.evict_oldest({.last_step = 50}), 20);
  EXPECT_EQ(store_.evict_oldest({.last_step = 50}), std::nullopt);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{30, 40}));
}

TEST_F(Writing, LosesNothingWhenItIsDestroyedEarly) {
  save(10);
  writer_.reset();
  EXPECT_EQ(steps(), std::vector<std::int64_t>{10});
}

TEST_F(Writing, ReportsAFailedSaveAndRetriesTheNewest) {
  save(10);
  writer_->finish();
  fs::create_directory(store_.path_of(11));
  save(11);
  save(12);
  fs::create_directory(store_.path_of(13));
  save(13);
  writer_->finish();
  EXPECT_FALSE(writer_->newest_is_saved());
  const auto reports = writer_->take_reports();
  ASSERT_EQ(reports.size(), 5u);
  const std::vector<bool> good{true, false, true, false, false};
  for (std::size_t i = 0; i < reports.size(); ++i) EXPECT_EQ(reports[i].failure.empty(), good[i]) << reports[i].failure;
  EXPECT_THAT(reports[1].failure, mentions(store_.path_of(11)));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{10, 12}));
  fs::remove(store_.path_of(13));
  writer_->finish();
  EXPECT_TRUE(writer_->newest_is_saved());
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{12, 13}));
}

}  // namespace
}  // namespace tutti
