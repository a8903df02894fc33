#include "support/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tutti::test {
namespace {

[[noreturn]] void become(const std::vector<std::string>& words, const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

// Reads both pipes until their writers are gone.
void drain(int out, int err, ChildResult& result) {
  std::array<pollfd, 2> pipes{pollfd{out, POLLIN, 0}, pollfd{err, POLLIN, 0}};
  std::array<char, 4096> chunk{};
  int open_pipes = 2;
  while (open_pipes > 0) {
    if (::poll(pipes.data(), pipes.size(), -1) < 0) throw std::runtime_error("poll failed");
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      if (pipes[i].fd < 0 || pipes[i].revents == 0) continue;
      const ssize_t got = ::read(pipes[i].fd, chunk.data(), chunk.size());
      if (got <= 0) {
        ::close(pipes[i].fd);
        pipes[i].fd = -1;
        --open_pipes;
      } else {
        (i == 0 ? result.out : result.err).append(chunk.data(), static_cast<std::size_t>(got));
      }
    }
  }
}

std::string required_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set: run this test by ctest");
  return value;
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& words, const std::map<std::string, std::string>& environment) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    become(words, environment);
  }
  ::close(out[1]);
  ::close(err[1]);
  ChildResult result;
  drain(out[0], err[0], result);
  int status = 0;
  if (::waitpid(child, &status, 0) != child) throw std::runtime_error("the child is lost");
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

ChildResult run_trainer(const std::vector<std::string>& options) {
  std::vector<std::string> words{required_environment("TUTTI_TRAINER")};
  words.insert(words.end(), options.begin(), options.end());
  return run_child(words);
}

ChildResult run_trainer(int ranks, const std::vector<std::string>& options) {
  std::vector<std::string> words{required_environment("TUTTI_MPIEXEC"), "-n", std::to_string(ranks),
                                 required_environment("TUTTI_TRAINER")};
  words.insert(words.end(), options.begin(), options.end());
  return run_child(words);
}

int count(const std::string& text, const std::string& needle) {
  int found = 0;
  for (std::size_t at = text.find(needle); at != std::string::npos; at = text.find(needle, at + needle.size())) ++found;
  return found;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace tutti::test
