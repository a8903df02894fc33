#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/comm/world.hpp"

#include "commands.hpp"
#include "processors.hpp"
#include "streams_and_signals.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "trainer-";

bool is_in_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access(fmt::format("{}/{}", folder.empty() ? "." : folder, program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

void require_interpreter(const fs::path& program) {
  std::ifstream file(program);
  if (!file) {
    throw Error(ErrorSource::io,
                fmt::format("'{}' is missing: install libexec/tutti together with the program", program.string()));
  }
  std::string first;
  std::getline(file, first);
  if (!first.starts_with("#!") || first.find("python3") == std::string::npos || is_in_path("python3")) return;
  throw Error(
      ErrorSource::usage,
      fmt::format("this command is a Python program, and there is no python3 in PATH: install Python 3.9 or "
                  "newer (Debian: apt install python3; clusters: module load python); training needs no Python"));
}

}  // namespace

fs::path program_path() {
  std::error_code unknown;
  const fs::path path = fs::read_symlink("/proc/self/exe", unknown);
  return unknown ? fs::path(program_call()) : path;
}

fs::path companions_folder() {
  std::error_code unknown;
  // A custom program may be in another folder than the library.
  const fs::path library = fs::canonical(library_path(), unknown).parent_path();
  const std::array candidates{program_path().parent_path() / "libexec/tutti", library / "libexec/tutti",
                              library / TUTTI_COMPANIONS_FROM_LIBRARY};
  for (const fs::path& candidate : candidates) {
    if (fs::is_directory(candidate, unknown)) return fs::canonical(candidate, unknown);
  }
  return {};
}

std::vector<Companion> find_companions() {
  std::vector<Companion> companions;
  std::error_code failure;
  for (fs::directory_iterator entry(companions_folder(), failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(kPrefix) || ::access(entry->path().c_str(), X_OK) != 0) continue;
    std::string words = name.substr(kPrefix.size());
    for (const std::string_view group : {"bench-", "data-"}) {
      if (words.starts_with(group)) words[group.size() - 1] = ' ';
    }
    companions.push_back({std::move(words), entry->path()});
  }
  std::ranges::sort(companions, {}, &Companion::name);
  return companions;
}

std::string summary_of(const Companion& companion) {
  constexpr std::string_view kQuotes = R"(""")";
  std::ifstream file(companion.program);
  std::string line;
  while (std::getline(file, line) && !line.starts_with(kQuotes)) continue;
  if (!line.starts_with(kQuotes)) return {};
  line = line.substr(kQuotes.size(), line.find(kQuotes, kQuotes.size()) - kQuotes.size());
  const std::size_t colon = line.find(": ");
  line = colon == std::string::npos ? line : line.substr(colon + 2);
  return line.ends_with('.') ? line.substr(0, line.size() - 1) : line;
}

ExitStatus exec_companion(const fs::path& program, const std::vector<std::string>& arguments) {
  if (launcher_rank() != 0) return ExitStatus::done;
  require_interpreter(program);
  ::setenv("TUTTI_TRAINER", program_path().c_str(), 1);
  ::setenv("TUTTI_CALL", program_call().c_str(), 1);
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  unblock_stop_signals();
  ::execv(program.c_str(), argv.data());
  throw Error(ErrorSource::io,
              fmt::format("cannot start '{}': {}", program.string(), std::generic_category().message(errno)));
}

}  // namespace tutti
