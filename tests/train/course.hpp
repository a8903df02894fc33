#pragma once
// A training on some ranks of a test's world, and everything that it tells, line by line: what must not depend on how
// many ranks there are.

#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "support/mpi_world.hpp"
#include "train/training_run.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

struct Course {
  int ranks = 1;
  NetworkSpec model;
  Precision precision = Precision::fp32;
  TrainerOptions options;
  std::string from{};              // a checkpoint that it starts from
  std::string to{};                // a folder for the one that it leaves
  std::set<std::int64_t> stops{};  // steps after which another trainer goes on from what the last one left
  bool helper_thread = false;
  std::int64_t digest_every = 1;
  // What stands between the trainer and the ring; null: nothing.
  std::function<std::unique_ptr<Communicator>(World& world, std::unique_ptr<Communicator> ring)> wrap{};
  // What befalls a rank: at once, or where the listener hears of a phase. Collective. Null: nothing.
  std::function<std::unique_ptr<PhaseListener>(int rank, Trainer& trainer)> befall{};
};

class Scribe : public RunObserver {
 public:
  explicit Scribe(std::set<std::int64_t> stops) : stops_(std::move(stops)) {}
  BoundaryAction at_boundary(std::int64_t step) override {
    return stops_.contains(step) ? BoundaryAction::save_and_stop : BoundaryAction::proceed;
  }
  void on_checkpoint(TrainState state, double) override { left = std::move(state); }
  void on_digest(const DigestReport& report) override {
    text += fmt::format("step {}: weights {:016x} gradients {:016x} optimizer {:016x} statistics {:016x}\n",
                        report.step, report.weights, report.gradients, report.optimizer, report.statistics.value_or(0));
  }
  void on_interval(const IntervalReport& report) override {
    text += fmt::format("step {}: {}\n", report.step, words(report.train));
  }
  void on_skipped(const SkippedReport& report) override { text += fmt::format("step {}: left out\n", report.step); }
  void on_epoch(const EpochReport& report) override {
    text += fmt::format("epoch {}: {}; test {}; {} redone\n", report.epoch, words(report.train),
                        words(report.test.value_or(LossSums{})), report.redone_steps);
  }

  std::string text;
  std::optional<TrainState> left;

 private:
  std::set<std::int64_t> stops_;
  static std::string words(const LossSums& sums) {
    return fmt::format("loss {}, {} correct of {}", sums.loss(), sums.correct, sums.samples);
  }
};

// What one rank reports. The last line counts the steps, and those that were repeated.
inline std::string follow(const Course& course, World& world, const DataPair& data) {
  const auto backend = make_cpu_backend(course.precision);
  auto communicator = make_mpi_communicator(world, {.helper_thread = course.helper_thread});
  if (course.wrap) communicator = course.wrap(world, std::move(communicator));
  const Network network(course.model, data.train->info().image, data.train->info().classes);
  TrainerOptions options = course.options;
  options.digest_every_steps = course.digest_every;
  options.log_every_steps = 1;
  Scribe scribe(course.stops);
  if (!course.from.empty()) scribe.left = load_checkpoint(course.from).state;
  std::int64_t replayed = 0;
  std::size_t stopped = 0;
  RunEnd end = RunEnd::stopped;
  RankStatus rank_status;
  try {
    while (end == RunEnd::stopped) {
      Trainer trainer({.backend = *backend,
                       .communicator = *communicator,
                       .network = network,
                       .train = *data.train,
                       .test = data.test.get(),
                       .rank_status = &rank_status},
                      options, {});
      if (scribe.left) trainer.restore(*scribe.left);
      const auto listener = course.befall ? course.befall(world.rank(), trainer) : nullptr;
      if (listener) rank_status.add(*listener);
      end = trainer.run(scribe);
      if (listener) rank_status.remove(*listener);
      replayed += trainer.replica().redone_steps();
      if (end == RunEnd::stopped) {
        ++stopped;
        continue;
      }
      EXPECT_EQ(stopped, course.stops.size());
      const TrainState state = trainer.snapshot();
      if (!course.to.empty() && world.rank() == 0) CheckpointStore(course.to).save(state);
      scribe.text += fmt::format("{} steps, {} repeated\n", trainer.steps_done(), replayed);
    }
  } catch (const Error& error) {
    scribe.text += fmt::format("ended: {}\n", error.what());
  }
  return scribe.text;
}

// The first line in which two texts differ, as either has it; empty where they are equal.
inline std::string first_difference(const std::string& one, const std::string& other) {
  const auto place = std::ranges::mismatch(one, other).in1 - one.begin();
  if (one == other) return {};
  const auto line = [begin = place == 0 ? 0 : one.rfind('\n', static_cast<std::size_t>(place) - 1) + 1](
                        const std::string& text) { return text.substr(begin, text.find('\n', begin) - begin); };
  return fmt::format("'{}', not '{}'", line(one), line(other));
}

// What each course's ranks heard, all the same. As many courses run at once as there are ranks for. Collective.
inline std::vector<std::string> heard(const std::vector<Course>& courses, const DataPair& data) {
  World& all = test_world();
  std::vector<std::string> heard;
  while (heard.size() < courses.size()) {
    std::vector<int> course_of_rank;
    std::size_t next = heard.size();
    for (; next < courses.size() && std::ssize(course_of_rank) + courses[next].ranks <= all.size(); ++next) {
      course_of_rank.insert(course_of_rank.end(), static_cast<std::size_t>(courses[next].ranks),
                            static_cast<int>(next));
    }
    course_of_rank.resize(static_cast<std::size_t>(all.size()), -1);
    const int mine = course_of_rank[static_cast<std::size_t>(all.rank())];
    const auto world = all.split(mine);
    const auto texts = all_gather_text(all, world ? follow(courses[static_cast<std::size_t>(mine)], *world, data) : "");
    for (std::size_t rank = 0; rank < texts.size() && course_of_rank[rank] >= 0; ++rank) {
      const bool first = rank == 0 || course_of_rank[rank] != course_of_rank[rank - 1];
      if (first) heard.push_back(texts[rank]);
      if (all.rank() > 0) continue;
      EXPECT_EQ(first_difference(texts[rank], heard.back()), "") << "rank " << rank;
    }
  }
  return heard;
}

// On small data that fills no whole number of batches.
inline Course small_course(const NetworkSpec& model, const ExchangeOptions& exchange) {
  Course course{.model = model, .options = {}};
  course.options.batch_size = 16;
  course.options.num_parts = 8;
  course.options.exchange = exchange;
  course.options.epochs = 1000;
  course.options.steps = 40;
  course.options.optimizer.weight_decay = 5e-4;
  return course;
}

// The lines that begin so.
inline std::string lines_of(const std::string& text, const std::string& beginning) {
  std::string lines;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (line.starts_with(beginning)) lines += line + "\n";
  }
  return lines;
}

// The same text from all courses, with so many steps. Collective.
inline void expect_the_same(const std::vector<Course>& courses, const DataPair& data) {
  const std::vector<std::string> texts = heard(courses, data);
  if (test_world().rank() != 0) return;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_NE(texts[i].find(fmt::format("\n{} steps, ", courses[i].options.steps)), std::string::npos) << texts[i];
    EXPECT_EQ(first_difference(texts[i], texts[0]), "") << courses[i].ranks << " ranks";
  }
}

inline std::vector<Course> on_ranks(const Course& course, const std::vector<int>& ranks) {
  std::vector<Course> courses;
  for (const int each : ranks) courses.emplace_back(course).ranks = each;
  return courses;
}

}  // namespace tutti
