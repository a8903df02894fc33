// A run that is killed by SIGKILL at random moments, including start-up and saving, and is resumed each time on another
// number of ranks, ends as an uninterrupted run does. $TUTTI_KILLS is the minimal number of kills. $TUTTI_KILL_SEED
// draws the same ranks, moments and processes again.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {
namespace {

constexpr int kMaxRanks = 8;
constexpr int kSteps = 40;
constexpr double kTimeoutSeconds = 60;
// Three retained checkpoints and one more until the oldest is deleted, of two files each, and the temporary files of a
// killed save.
constexpr std::size_t kMostFiles = 10;

constexpr const char* kModel = R"(name = "small residual"
init = "kaiming"
[[layer]]
name = "stem.conv"
type = "conv2d"
channels = 16
kernel = 3
padding = 1
[[layer]]
name = "stem.norm"
type = "batch-norm"
relu = true
[[layer]]
name = "block.conv"
type = "conv2d"
channels = 16
kernel = 3
padding = 1
[[layer]]
name = "block.norm"
type = "batch-norm"
residual = "stem.norm"
add = true
relu = true
[[layer]]
name = "head"
type = "linear"
units = "classes"
)";

Words run_words(const std::string& model, const std::string& out) {
  return with(
      words_of("--data synthetic:1500x1x14x14:4 --lr 0.02 --parts 8 --batch-size 128 --last-batch rollover "
               "--checkpoint-every 2 --resume"),
      {"--model", model, "--out", out, "--steps", std::to_string(kSteps), "--sample-log", out + "/samples.jsonl"});
}

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(std::filesystem::exists(path) ? read_text(path) : "");
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

// The number after `"key":`; negative if there is none.
int number_of(const std::string& record, const std::string& key) {
  const std::size_t at = record.find("\"" + key + "\":");
  return at == std::string::npos ? -1 : std::atoi(record.c_str() + at + key.size() + 3);
}

// The last record of each step's samples and of each epoch, without times and hashes.
struct Records {
  std::map<int, std::string> samples;
  std::map<int, std::string> epochs;
  std::vector<int> steps;  // as they were computed; some are repeated after a kill
  friend bool operator==(const Records& a, const Records& b) { return a.samples == b.samples && a.epochs == b.epochs; }
};

Records records_of(const std::string& out) {
  Records records;
  for (const std::string& line : lines_of(out + "/samples.jsonl")) {
    if (!line.starts_with("{\"step\":") || !line.ends_with("]]}")) continue;  // cut short by a kill
    records.steps.push_back(number_of(line, "step"));
    records.samples[records.steps.back()] = line;
  }
  static const std::regex varying("\"((test_)?seconds|images_per_second|unix_time|hash)\":[^,}]*,?");
  for (const std::string& line : lines_of(out + "/metrics.jsonl")) {
    if (line.starts_with("{\"event\":\"epoch\"") && line.ends_with("}")) {
      records.epochs[number_of(line, "epoch")] = std::regex_replace(line, varying, "");
    }
  }
  return records;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  if (!std::filesystem::exists(folder)) return names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

bool all_ended(const std::string& out) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kTimeoutSeconds);
  while (!processes_naming(out).empty()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class KilledRuns : public ::testing::Test {
 protected:
  KilledRuns() { std::ofstream(model_) << kModel; }

  void run_uninterrupted() {
    for (const int ranks : {1, kMaxRanks}) {
      const ChildResult run = run_trainer(ranks, run_words(model_, uninterrupted(ranks)));
      ASSERT_EQ(run.status, 0) << run.err;
      seconds_[ranks] = run.seconds;
    }
    whole_ = records_of(uninterrupted(1));
    ASSERT_EQ(static_cast<int>(whole_.samples.size()), kSteps);
    ASSERT_EQ(whole_.epochs.size(), 4U);
    ASSERT_EQ(records_of(uninterrupted(kMaxRanks)), whole_);
  }

  // Runs a training from its first start to its end, and kills it on the way.
  void run_killed(const std::string& out);
  void compare(const std::string& out);

  int draw(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }

  ScratchFolder folder_;
  std::string model_ = folder_.file("small.toml");
  std::uint64_t seed_ = number_from_environment("TUTTI_KILL_SEED", std::random_device{}());
  std::mt19937_64 random_{seed_};
  std::map<int, double> seconds_;  // of an uninterrupted run, by ranks
  Records whole_;
  int runs_ = 0;
  int kills_ = 0;
  int early_ = 0;    // kills before the first step
  int resumes_ = 0;  // from a checkpoint
  int failed_starts_ = 0;
  int hanging_launchers_ = 0;
  int repeated_ = 0;
  int most_repeated_ = 0;

 private:
  std::string uninterrupted(int ranks) const { return folder_.file(fmt::format("uninterrupted-{}", ranks)); }
  // The exit status; empty if it was killed.
  std::optional<int> start_and_kill(const std::string& out, int ranks, const std::string& log);
  void kill_some(const ChildProcess& job);
};

void KilledRuns::kill_some(const ChildProcess& job) {
  std::vector<pid_t> targets = job.descendants();
  const int kind = draw(4);  // 0, 1: all processes, 2: one that the launcher started, 3: the launcher
  if (kind == 2 && !targets.empty()) {
    targets = {targets[static_cast<std::size_t>(draw(static_cast<int>(targets.size())))]};
  } else if (kind == 3) {
    targets = {job.pid()};
  } else {
    targets.push_back(job.pid());
    std::shuffle(targets.begin(), targets.end(), random_);
  }
  for (const pid_t target : targets) ::kill(target, SIGKILL);
}

std::optional<int> KilledRuns::start_and_kill(const std::string& out, int ranks, const std::string& log) {
  const double longest = std::lerp(seconds_[1], seconds_[kMaxRanks], (ranks - 1) / (kMaxRanks - 1.0));
  const double moment = std::uniform_real_distribution<>(0, longest)(random_);
  // Leftovers of killed MPI jobs go to a folder that the test removes.
  ChildProcess job(trainer_words(ranks == 1 ? 0 : ranks, run_words(model_, out)), log,
                   {{"TMPDIR", folder_.path()},
                    {"OMPI_MCA_btl_vader_backing_directory", folder_.path()},  // of Open MPI 4
                    {"OMPI_MCA_btl_sm_backing_directory", folder_.path()}});   // and of 5
  if (const auto status = job.wait(moment)) return status;
  kill_some(job);
  auto status = job.wait(kTimeoutSeconds);
  if (!status) {
    // mpirun itself may wait forever for a rank that is killed while the two connect; no rank may be left.
    EXPECT_TRUE(job.descendants().empty()) << "ranks run on after a kill\n" << read_text(log);
    EXPECT_LT(++hanging_launchers_, 3 + kills_ / 20) << "the launcher runs on after a kill\n" << read_text(log);
    ::kill(job.pid(), SIGKILL);
    status = job.wait(kTimeoutSeconds);
  }
  if (status == 0) return 0;  // it ended before the kill
  ++kills_;
  return std::nullopt;
}

void KilledRuns::run_killed(const std::string& out) {
  ++runs_;
  int ranks = 0;
  for (int start = 0;; ++start) {
    const std::string log = out + fmt::format("-{}.log", start);
    const int before = ranks;
    while (ranks == before) ranks = 1 + draw(kMaxRanks);
    const auto status = start_and_kill(out, ranks, log);
    const std::string output = read_text(log);
    resumes_ += count(output, "resuming from ") > 0 ? 1 : 0;
    // Sometimes the last start is still running at the next one: the folder's lock must make the new one wait.
    if (draw(2) == 0 || status) {
      ASSERT_TRUE(all_ended(out)) << "processes run on after a kill\n" << output;
    }
    const auto files = names_in(out + "/checkpoints");
    ASSERT_LE(files.size(), kMostFiles) << ::testing::PrintToString(files);
    for (const std::string& name : files) ASSERT_EQ(name.find(".bad"), std::string::npos) << name << "\n" << output;
    if (status == 0) return;
    if (!status && count(output, "steps planned") == 0) ++early_;
    if (!status) continue;
    ASSERT_TRUE(output.find("trainer: ") == std::string::npos && output.find("[rank ") == std::string::npos)
        << "start " << start << " on " << ranks << " ranks ended with status " << *status << "\n"
        << output;
    ASSERT_LT(++failed_starts_, 3 + kills_ / 20) << "MPI does not start\n" << output;
  }
}

void KilledRuns::compare(const std::string& out) {
  const Records records = records_of(out);
  EXPECT_EQ(records.samples, whole_.samples);
  EXPECT_EQ(records.epochs, whole_.epochs);
  EXPECT_THAT(run_trainer({"diff", out, uninterrupted(1)}), ends(0));
  // The newest three, and a fourth if the last kill came between saving and deleting the oldest. Ranks that lose their
  // launcher may also save at a step of their own.
  std::map<std::string, int> files;  // per checkpoint
  for (const std::string& name : names_in(out + "/checkpoints")) ++files[name.substr(0, name.find('.'))];
  for (const auto& [checkpoint, count] : files) EXPECT_EQ(count, 2) << checkpoint;
  EXPECT_TRUE(files.size() == 3 || files.size() == 4) << ::testing::PrintToString(files);
  for (const char* newest : {"step-00000038", "step-00000040"}) EXPECT_TRUE(files.contains(newest)) << newest;
  for (const std::string& name : names_in(out)) EXPECT_EQ(name.find(".tmp."), std::string::npos) << name;
  for (std::size_t i = 1; i < records.steps.size(); ++i) {
    const int again = std::max(0, records.steps[i - 1] - records.steps[i] + 1);
    repeated_ += again;
    most_repeated_ = std::max(most_repeated_, again);
  }
}

TEST_F(KilledRuns, EndAsAnUninterruptedRun) {
  const auto wanted = static_cast<int>(number_from_environment("TUTTI_KILLS", 5));
  ASSERT_NO_FATAL_FAILURE(run_uninterrupted());
  // A few kills may all have been before the first checkpoint, or right after one.
  while ((kills_ < wanted || resumes_ == 0 || repeated_ == 0) && !HasFailure()) {
    const std::string out = folder_.file(fmt::format("killed-{}", runs_));
    ASSERT_NO_FATAL_FAILURE(run_killed(out)) << "TUTTI_KILL_SEED=" << seed_ << " draws this again";
    compare(out);
    std::filesystem::remove_all(out);
  }
  fmt::print(
      "{} kills in {} runs of {} steps, {} of them at start-up, {} resumes from a checkpoint, {} steps repeated "
      "({} at most at once), "
      "{} starts that MPI did not survive, {} launchers that hung; TUTTI_KILL_SEED={}\n",
      kills_, runs_, kSteps, early_, resumes_, repeated_, most_repeated_, failed_starts_, hanging_launchers_, seed_);
}

}  // namespace
}  // namespace tutti::test
