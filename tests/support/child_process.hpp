#pragma once
// Runs a program as a user would and returns its output, for tests of the whole trainer.

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti::test {

struct ChildResult {
  int status = -1;  // exit status, or 128 + signal
  std::string out;
  std::string err;
  double seconds = 0;
};

// The first word is the program's path. `environment` is added to the caller's. Throws when it cannot be started.
ChildResult run_child(const std::vector<std::string>& words,
                      const std::map<std::string, std::string>& environment = {});

// A program that runs in the background. The test may wait for it, send it signals and list its descendants. Its output
// is appended to the file `log`. The destructor, or the end of the test, kills it.
class ChildProcess {
 public:
  ChildProcess(const std::vector<std::string>& words, const std::string& log,
               const std::map<std::string, std::string>& environment = {});
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Returns its exit status, or 128 + signal, if it ends within `seconds`.
  std::optional<int> wait(double seconds);
  std::vector<pid_t> descendants() const;

 private:
  pid_t pid_;
  std::optional<int> status_;
};

// All other processes whose command line contains `words`.
std::vector<pid_t> processes_naming(const std::string& words);

// The trainer of this build ($TUTTI_TRAINER), without a launcher (0 ranks) or under mpiexec.
std::vector<std::string> trainer_words(int ranks, const std::vector<std::string>& options);
ChildResult run_trainer(const std::vector<std::string>& options);
ChildResult run_trainer(int ranks, const std::vector<std::string>& options);
// Runs a shell script on every rank. $RANK is the rank, and "$T" is the trainer.
ChildResult run_script(int ranks, const std::string& script,
                       const std::map<std::string, std::string>& environment = {});

// The number of occurrences of `needle`.
int count(const std::string& text, const std::string& needle);
// The output of a run without the times and speeds in its epoch lines.
std::string without_times(const std::string& out);
// The whole content of a file.
std::string read_text(const std::string& path);

}  // namespace tutti::test
