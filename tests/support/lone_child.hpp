#pragma once
// Runs code that may crash, hang or take all memory in a child process with limits: HDF5 promises nothing for files
// with wrong contents.

#include "tutti/base/error.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace tutti {

// Exit statuses that nothing else returns.
enum LoneOutcome : int { read_right = 10, read_wrong, refused, other_exception };

inline std::string name_of_outcome(int outcome) {
  switch (outcome) {
    case read_right:
      return "harmless";
    case read_wrong:
      return "read as something else";
    case refused:
      return "refused";
    case other_exception:
      return "another exception";
    case 128 + SIGALRM:
      return "hung";
    default:
      return "died with " + std::to_string(outcome);
  }
}

// `reads` returns whether it read the right values.
template <class Reads>
int outcome_in_child(const Reads& reads) {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr std::size_t kRoom = std::size_t{256} << 20;
    constexpr unsigned kSeconds = 30;
    rlimit room{};
    ::getrlimit(RLIMIT_AS, &room);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    room.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + kRoom;
    ::setrlimit(RLIMIT_AS, &room);
    constexpr rlimit kNone{0, 0};
    ::setrlimit(RLIMIT_CORE, &kNone);
    ::alarm(kSeconds);
    try {
      ::_exit(reads() ? read_right : read_wrong);
    } catch (const Error&) {
      ::_exit(refused);
    } catch (...) {
      ::_exit(other_exception);
    }
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace tutti
