#include "state_dicts.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include "commands.hpp"
#include "plan_choices.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <vector>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// tutti-export beside the installed program, or tools/export beside the companions of a checkout; else empty.
fs::path export_program() {
  std::error_code unknown;
  for (const fs::path& found :
       {program_path().parent_path() / "tutti-export", companions_folder().parent_path() / "export"}) {
    if (::access(found.c_str(), X_OK) == 0 && fs::is_regular_file(found, unknown)) return found;
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

// Waits for the program, which prints to stderr. Returns its exit status; 127 if it cannot be started.
int run(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
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
  pid_t child = 0;
  const int failure = ::posix_spawn(&child, argv.front(), &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  int status = 0;
  if (failure != 0) return 127;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 127;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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
  if (fs::is_regular_file(checkpoint, unknown)) {
    log.info(fmt::format("{} was converted to {} before", path, checkpoint.string()));
    return checkpoint;
  }
  log.info(fmt::format("{} is converted to {}, as one of torchvision's networks", path, checkpoint.string()));
  fs::create_directories(checkpoint.parent_path(), unknown);
  const int status = run({program, path, "--names", "torchvision", "--to-checkpoint", checkpoint});
  if (status == 0 && fs::is_regular_file(checkpoint, unknown)) return checkpoint;
  log.warn(fmt::format("{} could not be converted: {} ended with status {}", path, program.string(), status));
  return path;
}

}  // namespace tutti
