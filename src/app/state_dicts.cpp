#include "state_dicts.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "commands.hpp"
#include "plan_choices.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// tutti-export next to the installed program, or tools/export next to the companions of a checkout; else empty.
fs::path export_program() {
  for (const fs::path& found :
       {program_path().parent_path() / "tutti-export", companions_folder().parent_path() / "export"}) {
    if (::access(found.c_str(), X_OK) == 0 && is_plain_file(found)) return found;
  }
  return {};
}

// Its name depends on the file's path, size and time.
fs::path cached_checkpoint(const std::string& path) {
  const std::string folder = own_cache_folder();
  struct stat status {};
  if (folder.empty() || ::stat(path.c_str(), &status) != 0) return {};
  const std::string identity = fmt::format("{} {} {}.{}", fs::canonical(path).string(), status.st_size,
                                           status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  return fs::path(folder) / fmt::format("weights-{}.h5", digest_text(hash64(identity)));
}

struct Ended {
  int status = 127;    // that of a program that cannot be started
  std::string said{};  // what it has printed to stderr
};

std::string text_of(int pipe) {
  std::string text;
  std::array<char, 4096> read{};
  for (;;) {
    const ::ssize_t count = retry_on_eintr([&] { return ::read(pipe, read.data(), read.size()); });
    if (count <= 0) return text;
    text.append(read.data(), static_cast<std::size_t>(count));
  }
}

// Waits for the program, whose results go to stderr.
Ended run(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const Descriptor errors(ends[0]);
  Descriptor writer(ends[1]);
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_init(&actions);
  sigset_t none;
  sigemptyset(&none);  // stop signals are blocked in this process
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, writer.get(), STDERR_FILENO);
  pid_t child = 0;
  const int failure = ::posix_spawn(&child, argv.front(), &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failure != 0) return {};
  writer = {};  // so that reading ends with the program
  Ended ended{.said = text_of(errors.get())};
  int status = 0;
  if (retry_on_eintr([&] { return ::waitpid(child, &status, 0); }) < 0) return ended;
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

// Prints all but the last line, which is the reason if the program has failed, and returns that.
std::string reason_in(std::string said, const Log& log) {
  while (said.ends_with('\n')) said.pop_back();
  const std::size_t last = said.rfind('\n') + 1;
  if (last > 0) log.warn(said.substr(0, last - 1));
  said.erase(0, last);
  for (const std::string_view name : {"tools/export: ", "tutti-export: "}) {
    if (said.starts_with(name)) said.erase(0, name.size());
  }
  return said;
}

}  // namespace

bool is_state_dict(const std::string& path) {
  const fs::path ending = fs::path(path).extension();
  return ending == ".pt" || ending == ".pth" || ending == ".safetensors";
}

std::string conversion_command(const std::string& path) {
  const fs::path checkpoint = fs::path(path).replace_extension(".h5");
  return fmt::format("tools/export '{}' {}--to-checkpoint '{}' (installed: tutti-export)", path,
                     is_state_dict(path) ? "--names torchvision " : "", checkpoint.string());
}

std::string checkpoint_of_state_dict(const std::string& path, const Log& log) {
  std::error_code unknown;
  const fs::path program = export_program();
  const fs::path checkpoint = cached_checkpoint(path);
  if (program.empty() || checkpoint.empty()) return path;
  if (is_plain_file(checkpoint)) {
    log.info(fmt::format("{} was converted to {} before", path, checkpoint.string()));
    return checkpoint;
  }
  log.info(fmt::format("{} is converted to {}, as one of torchvision's networks", path, checkpoint.string()));
  fs::create_directories(checkpoint.parent_path(), unknown);
  const Ended ended = run({program, path, "--names", "torchvision", "--to-checkpoint", checkpoint});
  std::string last = reason_in(ended.said, log);
  if (ended.status != 0 || !is_plain_file(checkpoint)) {
    if (last.empty()) last = fmt::format("{} ended with status {}", program.string(), ended.status);
    const bool names_file = last.find(path) != std::string::npos;
    throw Error(ErrorSource::checkpoint, names_file ? last : fmt::format("{} cannot be converted: {}", path, last));
  }
  if (!last.empty()) log.warn(last);
  return checkpoint;
}

bool is_of_state_dict(const LoadedCheckpoint& loaded) {
  return loaded.state.command_line == "tools/export --names torchvision";  // torchvision_names.py writes that
}

std::string training_text(const LoadedCheckpoint& loaded) {
  return is_of_state_dict(loaded)
             ? fmt::format("torchvision's weights, as perhaps those of {}, are usually trained", loaded.path)
             : fmt::format("the weights of {} were trained", loaded.path);
}

}  // namespace tutti
