#pragma once
// Runs a program as a user would and keeps what it printed: for tests of the whole trainer.

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

// A program that runs beside the test, which may wait for it, send it signals and look at what it started; what it
// prints goes to the end of the file `log`. It is killed at the latest when this or the test ends.
class ChildProcess {
 public:
  ChildProcess(const std::vector<std::string>& words, const std::string& log,
               const std::map<std::string, std::string>& environment = {});
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Its exit status, or 128 + signal, if it ends within so long.
  std::optional<int> wait(double seconds);
  std::vector<pid_t> descendants() const;

 private:
  pid_t pid_;
  std::optional<int> status_;
};

// All processes, this one left out, whose command line holds `words`.
std::vector<pid_t> processes_naming(const std::string& words);

// The trainer of this build ($TUTTI_TRAINER), alone (0 ranks) or under mpiexec with so many ranks.
std::vector<std::string> trainer_words(int ranks, const std::vector<std::string>& options);
ChildResult run_trainer(const std::vector<std::string>& options);
ChildResult run_trainer(int ranks, const std::vector<std::string>& options);
// A script as the shell runs it on every rank, where $RANK says which it is, and "$T" is the trainer.
ChildResult run_script(int ranks, const std::string& script,
                       const std::map<std::string, std::string>& environment = {});

// How often `needle` occurs, and the whole content of a file.
int count(const std::string& text, const std::string& needle);
std::string read_text(const std::string& path);

}  // namespace tutti::test
