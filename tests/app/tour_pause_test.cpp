// Who is asked between two stations of the tour, and what the answers do.

#include "support/child_process.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

// Each with its heading and what comes before the next one.
std::vector<std::vector<std::string>> lines_of_stations(const std::string& out) {
  std::vector<std::vector<std::string>> stations;
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("Station ")) stations.emplace_back();
    if (!stations.empty()) stations.back().push_back(line);
  }
  return stations;
}

// At a terminal of its own; keys: what is typed at the prompts, one after the other.
struct AtTerminal {
  int status = -1;
  std::string out;
};
AtTerminal tour_at_terminal(const Words& words, Words keys) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv(arguments.front(), arguments.data());
    ::_exit(127);
  }
  AtTerminal result;
  std::array<char, 4096> some{};
  for (int prompts = 0;;) {
    const ssize_t length = ::read(terminal, some.data(), some.size());
    if (length <= 0) break;
    result.out.append(some.data(), static_cast<std::size_t>(length));
    if (count(result.out, "q ends.") == prompts || keys.empty()) continue;
    ++prompts;
    if (::write(terminal, keys.front().data(), keys.front().size()) < 0) break;
    keys.erase(keys.begin());
  }
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// In the shell, where $T is the program and $M the launcher.
ChildResult in_shell(const std::string& line) {
  return run_child({"sh", "-c", line}, {{"T", std::getenv("TUTTI_TRAINER")}, {"M", std::getenv("TUTTI_MPIEXEC")}});
}

TEST(TourPause, WaitsForNobodyWithoutATerminal) {
  const ChildResult alone =
      in_shell("f=$(mktemp -u); mkfifo $f; exec 3<>$f; rm $f; exec \"$T\" tour --pause --to 2 <&3");
  EXPECT_EQ(alone.status, 0) << alone.err;
  EXPECT_EQ(count(alone.out, "Enter"), 0) << alone.out;
}

TEST(TourPause, GoesOnWhereALauncherHasNoKeys) {
  const ChildResult two = in_shell("exec \"$M\" -n 2 \"$T\" tour --pause --to 4 </dev/null");
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_EQ(count(two.out, "Enter goes on, q ends."), 1) << two.out;
  EXPECT_EQ(count(two.out, " of 9, "), 4) << two.out;
}

TEST(TourPause, GoesOnAtTheKeysThatALauncherHandsOn) {
  const ChildResult two = in_shell("printf '\\n\\n\\n' | exec \"$M\" -n 2 \"$T\" tour --pause --to 4");
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_EQ(count(two.out, "Enter goes on, q ends."), 3) << two.out;
  EXPECT_EQ(count(two.out, " of 9, "), 4) << two.out;
}

TEST(TourPause, EndsAtAQ) {
  const ChildResult two = in_shell("printf '\nq\n\n' | exec \"$M\" -n 2 \"$T\" tour --pause");
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_EQ(two.err, "");
  EXPECT_EQ(count(two.out, " of 9, "), 2) << two.out;
}

TEST(TourPause, PutsThePromptWhereAnEmptyLineWas) {
  const std::string keys = "printf '\n\n\n\n\n\n\n\n' | exec \"$M\" -n 4 \"$T\" tour --pause --steps 12";
  const ChildResult tour = in_shell(keys);
  ASSERT_EQ(tour.status, 0) << tour.err;
  const auto lines = lines_of_stations(tour.out);
  ASSERT_EQ(lines.size(), 9U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_LE(lines[i].size(), 24U) << lines[i].front();
    EXPECT_EQ(lines[i].back(), i + 1 < lines.size() ? "Enter goes on, q ends." : "") << lines[i].front();
  }
}

TEST(TourPause, EndsWhereATerminalInterruptsOrHasNoMoreToSay) {
  const std::string interrupt = "\x03";
  const std::string end = "\x04";
  for (const std::string& last : {interrupt, end, std::string("q\n")}) {
    const AtTerminal tour = tour_at_terminal({std::getenv("TUTTI_TRAINER"), "tour", "--pause"}, {"\n", last});
    EXPECT_EQ(tour.status, 0) << tour.out;
    EXPECT_EQ(count(tour.out, " of 9, "), 2) << tour.out;
  }
}

}  // namespace
}  // namespace tutti::test
