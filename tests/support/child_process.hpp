#pragma once
// Runs a program as a user would and keeps what it printed: for tests of the whole trainer.

#include <map>
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

// The trainer of this build ($TUTTI_TRAINER), alone or under mpiexec with so many ranks.
ChildResult run_trainer(const std::vector<std::string>& options);
ChildResult run_trainer(int ranks, const std::vector<std::string>& options);

// How often `needle` occurs, and the whole content of a file.
int count(const std::string& text, const std::string& needle);
std::string read_text(const std::string& path);

}  // namespace tutti::test
