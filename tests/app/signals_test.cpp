// Any ranks may receive any stop signal at any moment, including start-up, saving and evaluation. The run then leaves
// one good checkpoint and status 75, and resumes on another number of ranks to the result of an uninterrupted run.
// $TUTTI_SIGNALS is the minimal number of stops. $TUTTI_SIGNAL_SEED draws the same ranks, signals and moments again.

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
#include <functional>
#include <random>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {
namespace {

constexpr int kSignalledRanks = 4;
constexpr double kSignalSeconds = 200;

Words run_words(const std::string& out) {
  return with(words_of("--data synthetic:3000x1x28x28:10 --resume --validation-ratio 0.4 --parts 4 --batch-size 60 "
                       "--last-batch rollover --lr 0.01 --epochs 12 --checkpoint-every 7 --out"),
              {out});
}

// Whether a process is a running trainer that handles SIGUSR1, from /proc.
bool listens(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  bool is_trainer = false;
  for (std::string line; std::getline(status, line);) {
    if (line == "Name:\ttrainer") is_trainer = true;
    if (line.starts_with("SigBlk:")) {
      return is_trainer && (std::stoull(line.substr(7), nullptr, 16) >> (SIGUSR1 - 1) & 1) != 0;
    }
  }
  return false;
}

bool holds_half_a_save(const std::string& folder) {
  if (!std::filesystem::exists(folder)) return false;
  return std::ranges::any_of(std::filesystem::directory_iterator(folder), [](const auto& entry) {
    return entry.path().filename().string().find(".tmp.") != std::string::npos;
  });
}

// The step of the newest committed checkpoint, or -1.
int newest_step(const std::string& out) {
  int newest = -1;
  if (!std::filesystem::exists(out + "/checkpoints")) return newest;
  for (const auto& entry : std::filesystem::directory_iterator(out + "/checkpoints")) {
    int step = -1;
    const std::string name = entry.path().filename();
    if (name.ends_with(".json") && std::sscanf(name.c_str(), "step-%d", &step) == 1) newest = std::max(newest, step);
  }
  return newest;
}

struct Leg {
  int ranks = 0;  // 0: one rank without a launcher
  std::vector<int> signals;
  int receivers = 1;
  int moment = 0;  // 0: as soon as all ranks listen, 1: during a save, else at any time
};

class Signals : public ::testing::Test {
 protected:
  void run_uninterrupted() {
    const ChildResult run = run_trainer(2, run_words(uninterrupted_));
    ASSERT_EQ(run.status, 0) << run.err;
    seconds_ = run.seconds;
  }
  // Runs a training from its first start to its end, and stops it on the way until there are `wanted` stops.
  void run_stopped(const std::string& out, int wanted);

  int draw(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }

  ScratchFolder folder_;
  std::string uninterrupted_ = folder_.file("uninterrupted");
  std::uint64_t seed_ = number_from_environment("TUTTI_SIGNAL_SEED", std::random_device{}());
  std::mt19937_64 random_{seed_};
  double seconds_ = 0;  // of an uninterrupted run
  int stops_ = 0;
  int runs_ = 0;

 private:
  Leg draw_leg(int ranks_before);
  bool wait_until(const ChildProcess& job, const std::function<bool()>& condition);
  void send(ChildProcess& job, const Leg& leg, const std::string& out);
  void expect_stop(const Leg& leg, const std::string& out, const std::string& output, int step_before);
};

Leg Signals::draw_leg(int ranks_before) {
  Leg leg{.ranks = draw(3) == 0 ? 4 : draw(kSignalledRanks), .signals = {}, .receivers = 1, .moment = draw(4)};
  if (leg.ranks == ranks_before) leg.ranks = (leg.ranks + 1) % (kSignalledRanks + 1);
  const std::array<int, 3> choices{SIGUSR1, SIGTERM, SIGINT};
  leg.signals = {choices[static_cast<std::size_t>(draw(3))]};
  if (draw(3) == 0) leg.receivers = kSignalledRanks;
  // The signal is repeated, except SIGINT: a second one ends the process.
  if (draw(3) == 0) leg.signals.push_back(leg.signals.front() == SIGINT ? SIGTERM : leg.signals.front());
  return leg;
}

bool Signals::wait_until(const ChildProcess& job, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kSignalSeconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end || ::kill(job.pid(), 0) != 0) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

void Signals::send(ChildProcess& job, const Leg& leg, const std::string& out) {
  std::vector<pid_t> ranks;
  ASSERT_TRUE(wait_until(job, [&] {
    ranks = leg.ranks > 0 ? job.descendants() : std::vector{job.pid()};
    std::erase_if(ranks, [](pid_t process) { return !listens(process); });
    return std::ssize(ranks) == std::max(leg.ranks, 1);
  })) << "the ranks do not listen to signals";
  if (leg.moment == 1) {
    wait_until(job, [&] { return holds_half_a_save(out + "/checkpoints") || job.wait(0); });
  } else if (leg.moment > 1) {
    job.wait(std::uniform_real_distribution<>(0, seconds_ / 2)(random_));
  }
  std::ranges::shuffle(ranks, random_);
  ranks.resize(std::min(ranks.size(), static_cast<std::size_t>(leg.receivers)));
  for (const int signal : leg.signals) {
    for (const pid_t rank : ranks) ::kill(rank, signal);
    if (draw(2) == 0) job.wait(0.02);
  }
}

void Signals::expect_stop(const Leg& leg, const std::string& out, const std::string& output, int step_before) {
  const std::string note = read_text(out + "/exit.json");
  EXPECT_THAT(note, mentions("\"status\":75"));
  EXPECT_TRUE(std::regex_search(note, std::regex("SIG(USR1|TERM|INT) at rank [0-3] on host "))) << note;
  if (leg.ranks == 0) {
    EXPECT_THAT(note, mentions("at rank 0 on"));
  }
  EXPECT_GT(newest_step(out), step_before) << output;
  EXPECT_FALSE(holds_half_a_save(out + "/checkpoints"));
}

void Signals::run_stopped(const std::string& out, int wanted) {
  ++runs_;
  Leg leg;
  for (int start = 0;; ++start) {
    const int step_before = newest_step(out);
    leg = draw_leg(leg.ranks);
    const std::string log = out + fmt::format("-{}.log", start);
    ChildProcess job(trainer_words(leg.ranks, run_words(out)), log);
    if (stops_ < wanted) {
      ASSERT_NO_FATAL_FAILURE(send(job, leg, out)) << read_text(log);
    }
    const auto status = job.wait(kSignalSeconds);
    const std::string output = read_text(log);
    ASSERT_TRUE(status) << "it does not stop\n" << output;
    if (step_before >= 0) {
      EXPECT_THAT(output, mentions(fmt::format("step-{:08}.h5 (step {} of ", step_before, step_before)));
    }
    if (status == 0) return;  // it ended before the signal
    ASSERT_EQ(*status, 75) << output;
    ++stops_;
    ASSERT_NO_FATAL_FAILURE(expect_stop(leg, out, output, step_before));
  }
}

TEST_F(Signals, LeaveOneGoodCheckpointAndStatus75) {
  const auto wanted = static_cast<int>(number_from_environment("TUTTI_SIGNALS", 4));
  ASSERT_NO_FATAL_FAILURE(run_uninterrupted());
  while (stops_ < wanted && !HasFailure()) {
    const std::string out = folder_.file(fmt::format("stopped-{}", runs_));
    ASSERT_NO_FATAL_FAILURE(run_stopped(out, wanted)) << "TUTTI_SIGNAL_SEED=" << seed_ << " draws this again";
    const ChildResult diff = run_trainer({"diff", out, uninterrupted_});
    EXPECT_EQ(diff.status, 0) << diff.out << diff.err << "TUTTI_SIGNAL_SEED=" << seed_;
  }
  fmt::print("{} stops in {} runs; TUTTI_SIGNAL_SEED={}\n", stops_, runs_, seed_);
}

TEST_F(Signals, AreNotNeededWithATimeLimit) {
  const std::string out = folder_.file("limited");
  EXPECT_THAT(run_trainer(3, with(run_words(out), {"--time-limit", "1s"})), ends(75));
  const std::string note = read_text(out + "/exit.json");
  EXPECT_THAT(note, mentions("the time limit of 1 s"));
  const int step = newest_step(out);
  EXPECT_GT(step, 0);
  EXPECT_THAT(run_trainer(2, {"--resume", "--out", out, "--steps", std::to_string(step + 1)}), ends(0));
  EXPECT_FALSE(std::filesystem::exists(out + "/exit.json"));
}

// A long run on 2 ranks, or on one rank without a launcher, that has completed some steps.
class LongRun {
 public:
  LongRun(const ScratchFolder& folder, int ranks, bool saves = true)
      : log_(folder.file("log")),
        job_(trainer_words(ranks,
                           with({"--data", "synthetic:6000x1x28x28:10", "--model", "mlp", "--epochs", "100000"},
                                saves ? Words{"--checkpoint-every", "end", "--out", folder.file("run")} : Words{})),
             log_) {
    while (log().find("epoch      2/") == std::string::npos && !job_.wait(0.02)) continue;
  }

  ChildProcess& job() { return job_; }
  std::string log() const { return std::filesystem::exists(log_) ? read_text(log_) : ""; }

 private:
  std::string log_;
  ChildProcess job_;
};

std::string names_and_sizes(const std::string& folder) {
  std::string all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    all += fmt::format("{} {}\n", entry.path().string(), entry.is_directory() ? 0 : entry.file_size());
  }
  return all;
}

TEST(LongRuns, SaveWhenTheirTerminalIsClosed) {
  const ScratchFolder folder;
  LongRun run(folder, 0);
  ::kill(run.job().pid(), SIGHUP);
  EXPECT_EQ(run.job().wait(kSignalSeconds), 75) << run.log();
  EXPECT_NE(run.log().find("] SIGHUP: the ranks finish their step, save and stop\n"), std::string::npos) << run.log();
  EXPECT_GT(newest_step(folder.file("run")), 0);
}

TEST(LongRuns, WithoutAFolderStopAfterTheirStepWithoutASave) {
  for (const int ranks : {0, 2}) {
    const ScratchFolder folder;
    LongRun run(folder, ranks, /*saves=*/false);
    std::vector<pid_t> processes = ranks > 0 ? run.job().descendants() : std::vector{run.job().pid()};
    std::erase_if(processes, [](pid_t process) { return !listens(process); });
    ASSERT_FALSE(processes.empty()) << run.log();
    ::kill(processes.front(), SIGUSR1);
    EXPECT_EQ(run.job().wait(kSignalSeconds), 75) << run.log();
    EXPECT_NE(run.log().find("; without --out nothing is saved\n"), std::string::npos) << run.log();
    EXPECT_EQ(run.log().find("save and stop"), std::string::npos) << run.log();
  }
}

TEST(LongRuns, SaveWhenTheReaderOfTheirOutputHasEnded) {
  const ScratchFolder folder;
  const std::string out = folder.file("run");
  EXPECT_THAT(run_child({"bash", "-c", "\"$0\" \"$@\" | head -n 1; exit ${PIPESTATUS[0]}", std::getenv("TUTTI_TRAINER"),
                         "--data", "synthetic:6000x1x28x28:10", "--model", "mlp", "--epochs", "100000",
                         "--checkpoint-every", "end", "--out", out}),
              ends(75, "stopped by a closed stdout"));
  EXPECT_GT(newest_step(out), 0);
}

TEST(LongRuns, EndWhenTheirFolderIsRemovedOrRenamed) {
  for (const char* command : {"rm -rf", "mv"}) {
    const ScratchFolder folder;
    const std::string out = folder.file("run");
    const std::string moved = folder.file("moved");
    LongRun run(folder, 2);
    EXPECT_EQ(run_child({"sh", "-c", fmt::format("{} {} {}", command, out, command[0] == 'm' ? moved : "")}).status, 0);
    const auto status = run.job().wait(kSignalSeconds);
    ASSERT_TRUE(status) << run.log();
    EXPECT_NE(*status, 0) << run.log();
    EXPECT_EQ(count(run.log(), "the folder was removed or renamed during the run"), 1) << run.log();
    EXPECT_FALSE(std::filesystem::exists(out)) << names_and_sizes(out);
  }
}

// Such a run was suspended, and a later start of its job has taken its lock over.
TEST(LongRuns, WriteNothingOnceAnotherRunOwnsTheirFolder) {
  const ScratchFolder folder;
  const std::string out = folder.file("run");
  LongRun run(folder, 0);
  ::kill(run.job().pid(), SIGSTOP);
  std::filesystem::remove(out + "/lock");
  std::ofstream(out + "/lock") << "host n2, process 7\n";
  const std::string before = names_and_sizes(out);
  ::kill(run.job().pid(), SIGCONT);
  EXPECT_EQ(run.job().wait(kSignalSeconds), 73) << run.log();
  EXPECT_NE(run.log().find("in use by host n2, process 7"), std::string::npos) << run.log();
  EXPECT_EQ(names_and_sizes(out), before);
}

}  // namespace
}  // namespace tutti::test
