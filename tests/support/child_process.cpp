#include "support/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>

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

// Reads both pipes until their writers have closed them.
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

int status_of(int waited) { return WIFEXITED(waited) ? WEXITSTATUS(waited) : 128 + WTERMSIG(waited); }

// Empty if the process has ended.
std::string text_of(pid_t process, const char* file) {
  std::ifstream stream("/proc/" + std::to_string(process) + "/" + file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// 0: it has ended.
pid_t parent_of(pid_t process) {
  const std::string text = text_of(process, "stat");  // number, (name), state, parent
  std::istringstream rest(text.substr(text.rfind(')') + 1));
  char state = 0;
  pid_t parent = 0;
  return rest >> state >> parent && state != 'Z' ? parent : 0;
}

std::vector<pid_t> processes_that(const std::function<bool(pid_t)>& fit) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    pid_t process = 0;
    const bool is_number =
        std::from_chars(name.data(), name.data() + name.size(), process).ptr == name.data() + name.size();
    if (is_number && process != ::getpid() && fit(process)) found.push_back(process);
  }
  return found;
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
  result.status = status_of(status);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

ChildProcess::ChildProcess(const std::vector<std::string>& words, const std::string& log,
                           const std::map<std::string, std::string>& environment)
    : pid_(::fork()) {
  if (pid_ < 0) throw std::runtime_error("no process");
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  become(words, environment);
}

ChildProcess::~ChildProcess() {
  if (status_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<int> ChildProcess::wait(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!status_) {
    int waited = 0;
    const pid_t ended = ::waitpid(pid_, &waited, WNOHANG);
    if (ended < 0) throw std::runtime_error("the child is lost");
    if (ended == pid_) {
      status_ = status_of(waited);
    } else if (std::chrono::steady_clock::now() >= end) {
      break;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return status_;
}

std::vector<pid_t> ChildProcess::descendants() const {
  return processes_that([this](pid_t process) {
    pid_t parent = parent_of(process);
    while (parent > 1 && parent != pid_) parent = parent_of(parent);
    return parent == pid_;
  });
}

std::vector<pid_t> processes_naming(const std::string& words) {
  return processes_that([&](pid_t process) { return text_of(process, "cmdline").find(words) != std::string::npos; });
}

std::vector<std::string> trainer_words(int ranks, const std::vector<std::string>& options) {
  std::vector<std::string> words;
  if (ranks > 0) words = {required_environment("TUTTI_MPIEXEC"), "-n", std::to_string(ranks)};
  words.push_back(required_environment("TUTTI_TRAINER"));
  words.insert(words.end(), options.begin(), options.end());
  return words;
}

ChildResult run_trainer(const std::vector<std::string>& options) { return run_trainer(0, options); }

ChildResult run_trainer(int ranks, const std::vector<std::string>& options) {
  return run_child(trainer_words(ranks, options));
}

ChildResult run_script(int ranks, const std::string& script, const std::map<std::string, std::string>& environment) {
  const std::string whole = "RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; T=$0; " + script;
  return run_child({required_environment("TUTTI_MPIEXEC"), "-n", std::to_string(ranks), "/bin/sh", "-c", whole,
                    required_environment("TUTTI_TRAINER")},
                   environment);
}

int count(const std::string& text, const std::string& needle) {
  int found = 0;
  for (std::size_t at = text.find(needle); at != std::string::npos; at = text.find(needle, at + needle.size())) ++found;
  return found;
}

std::string without_times(const std::string& out) {
  return std::regex_replace(out, std::regex("time [^,]*, [^,]*"), "");
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace tutti::test
