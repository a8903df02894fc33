// A stalled job ends on all ranks, and reports the rank that was stopped or killed from outside with its phase. Jobs
// that go on, or end for another reason, report nothing.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {
namespace {

constexpr double kStallSeconds = 60;
constexpr int kHang = 86;

Words endless(const Words& more = {}) {
  return with(words_of("--data synthetic:3000x1x28x28:10 --batch-size 60 --epochs 100000 --threads 1 --stall-timeout 3 "
                       "--digest-every 1 --progress never"),
              more);
}

// Empty if the file does not exist: the process may not exist yet, or any more.
std::string text_at(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

bool is_rank(pid_t process, int rank) {
  const std::string environment = text_at(fmt::format("/proc/{}/environ", process));
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (environment.find(std::string(1, '\0') + name + "=" + std::to_string(rank) + '\0') != std::string::npos) {
      return text_at(fmt::format("/proc/{}/comm", process)) == "trainer\n";
    }
  }
  return false;
}

bool is_alive(pid_t process) {
  const std::string status = text_at(fmt::format("/proc/{}/status", process));
  return !status.empty() && status.find("State:\tZ") == std::string::npos;
}

class StalledRanks : public ::testing::Test {
 protected:
  bool wait_until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kStallSeconds);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  // The trainer's process of that rank, once it has completed some steps.
  pid_t process_of(const ChildProcess& job, int rank) {
    pid_t found = 0;
    EXPECT_TRUE(wait_until([&] {
      if (text_at(log_).find("multiply-adds") == std::string::npos) return false;  // it has begun
      for (const pid_t process : job.descendants()) {
        if (is_rank(process, rank)) found = process;
      }
      return found != 0;
    })) << output();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return found;
  }
  std::string output() const { return text_at(log_); }
  bool has_printed(const std::string& pattern) const { return std::regex_search(output(), std::regex(pattern)); }

  void expect_stop_of(int rank, const Words& words) {
    const int ranks = 3;
    ChildProcess job(trainer_words(ranks, words), log_);
    const pid_t process = process_of(job, rank);
    ASSERT_NE(process, 0);
    const std::vector<pid_t> all = job.descendants();
    ::kill(process, SIGSTOP);
    EXPECT_EQ(job.wait(kStallSeconds), kHang) << output();
    EXPECT_TRUE(has_printed(fmt::format("warning: rank {} on .* is late: .* stopped; 2 ranks wait for it", rank)))
        << output();
    EXPECT_TRUE(has_printed(fmt::format("rank {} on .* is stuck: .* stopped; 2 ranks wait for it", rank))) << output();
    EXPECT_FALSE(has_printed("finish their step")) << "a failing job must not announce that it finishes its step\n"
                                                   << output();
    EXPECT_TRUE(wait_until([&] { return std::ranges::none_of(all, is_alive); })) << "processes are left";
  }

  ScratchFolder folder_;
  std::string log_ = folder_.file("log");
};

TEST_F(StalledRanks, AreNamedWhenTheyAreStopped) {
  const std::string out = folder_.file("out");
  expect_stop_of(2, endless({"--out", out}));
  const std::string note = read_text(out + "/exit.json");
  EXPECT_THAT(note, mentions("\"status\":86,\"rank\":2,"));
  EXPECT_TRUE(std::regex_search(note, std::regex("\"phase\":\"[a-z]+\",\"step\":[0-9]+"))) << note;
}

TEST_F(StalledRanks, AreNamedByOthersWhenRankZeroIsStopped) { expect_stop_of(0, endless()); }

TEST_F(StalledRanks, AreNamedInMeasurementsToo) {
  ChildProcess job(trainer_words(2, words_of("bench allreduce --repeats 1000000 --stall-timeout 3")), log_);
  job.wait(3);
  pid_t process = 0;
  for (const pid_t each : job.descendants()) process = is_rank(each, 1) ? each : process;
  ASSERT_NE(process, 0) << output();
  ::kill(process, SIGSTOP);
  EXPECT_EQ(job.wait(kStallSeconds), kHang) << output();
  EXPECT_TRUE(has_printed("rank 1 on .* is stuck")) << output();
}

TEST_F(StalledRanks, OfJobsThatAreTerminatedAreNotReported) {
  for (const int signal : {SIGTERM, SIGINT}) {
    ChildProcess job(trainer_words(3, endless()), log_);
    ASSERT_NE(process_of(job, 1), 0);
    ::kill(job.pid(), signal);
    EXPECT_TRUE(job.wait(kStallSeconds));
    EXPECT_FALSE(has_printed("is gone|is late|is stuck")) << output();
  }
}

TEST_F(StalledRanks, AreNotReportedWhereStepsAreShort) {
  const ChildResult run = run_trainer(3, words_of("--data synthetic:600x1x28x28:10 --batch-size 30 --epochs 15 "
                                                  "--model mlp --threads 1 --stall-timeout 10"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_FALSE(std::regex_search(run.err, std::regex("is gone|is late|is stuck|not stuck"))) << run.err;
}

}  // namespace
}  // namespace tutti::test
