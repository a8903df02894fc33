#include "plan_choices.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/atomic_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSeparator = " | ";
constexpr off_t kMaxBytes = 4 << 20;  // of a file that the user did not name

// For a kind of processor, with the version of its library.
// "/home/ada/.cache/tutti/plans-cuda-NVIDIA-H200-132-multiprocessors-140-GiB-cuDNN-9.19.0.txt"
std::string own_cache_file(const std::string& processor) {
  const std::string folder = own_cache_folder();
  if (folder.empty()) return {};
  std::string name = "plans";
  bool begins_word = true;
  for (const char c : processor) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
    if (is_plain && begins_word) name += '-';
    if (is_plain) name += c;
    begins_word = !is_plain;
  }
  return (fs::path(folder) / (name + ".txt")).string();
}

bool is_automatic(const ProcessorOptions& options) { return options.plan_cache == "auto"; }

// Whether it is a plain file of this user, of a size that can be right.
bool is_trustworthy(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid() &&
         status.st_size <= kMaxBytes;
}

std::string read_named(const std::string& path) { return is_plain_file(path) ? read_file_text(path) : ""; }

// A file that cannot be read is like one that is not there.
std::string read_own(const std::string& path) {
  if (path.empty() || !is_trustworthy(path)) return {};
  try {
    return read_file_text(path);
  } catch (const Error&) {
    return {};
  }
}

std::string known_choices(const ProcessorOptions& options, const Backend& backend) {
  if (names_plan_cache(options)) return read_named(options.plan_cache);
  return is_automatic(options) && options.gpu.search_plans ? read_own(own_cache_file(backend.description())) : "";
}

// The library and the processor, with which a line begins.
std::string owner_of(const std::string& line) {
  const std::size_t after_library = line.find(kSeparator);
  if (after_library == std::string::npos) return {};
  return line.substr(0, line.find(kSeparator, after_library + kSeparator.size()));
}

// One line for each convolution: the newer.
std::string merged(const std::vector<std::string>& before, const std::vector<std::string>& newer) {
  std::map<std::string, std::string> choices;
  for (const auto* const lines : {&before, &newer}) {
    for (const std::string& line : *lines) choices[line.substr(0, line.rfind(kSeparator))] = line;
  }
  std::string text;
  for (const auto& [convolution, line] : choices) text += line + "\n";
  return text;
}

// What is new and was measured.
std::string measured_since(const std::string& before, const std::string& after) {
  const std::vector<std::string> known = lines_of(before);
  std::string text;
  for (const std::string& line : lines_of(after)) {
    if (std::ranges::count(known, line) == 0 && !line.ends_with(" untimed")) text += line + "\n";
  }
  return text;
}

// Jobs may do so at once: what one adds may be lost to the other, and is then measured again.
void add(const std::string& path, const std::string& before, const std::string& after) {
  if (after != before) write_atomically(path, std::as_bytes(std::span(after)));
}

// Lines of others, as after damage, are removed.
void add_to_own(const std::string& processor, const std::vector<std::string>& measured) {
  const std::string path = own_cache_file(processor);
  if (path.empty() || measured.empty()) return;
  const fs::path folder = fs::path(path).parent_path();
  fs::create_directories(folder.parent_path());
  if (fs::create_directory(folder)) fs::permissions(folder, fs::perms::owner_all);
  if (fs::symlink_status(path).type() != fs::file_type::not_found && !is_trustworthy(path)) {
    throw Error(ErrorSource::save, fmt::format("'{}' is not a plain file of yours, or too large: remove it", path));
  }
  const std::string before = read_own(path);
  auto lines = lines_of(before);
  std::erase_if(lines, [&](const std::string& line) { return owner_of(line) != owner_of(measured.front()); });
  add(path, before, merged(lines, measured));
}

// Of each rank. What was not chosen by the rank is empty.
struct Choices {
  std::vector<std::string> kinds;  // of its processor
  std::vector<std::string> all;
  std::vector<std::string> measured;  // by this run
};

// A file that the user names has all choices of the run, so that another run can repeat it.
void keep(const ProcessorOptions& options, const Choices& choices, const Log& log) {
  if (!options.gpu.search_plans) return;
  if (names_plan_cache(options)) {
    const std::string before = read_named(options.plan_cache);
    std::string after = before;
    for (const std::string& lines : choices.all) {
      if (!lines.empty()) after = merged(lines_of(after), lines_of(lines));
    }
    return add(options.plan_cache, before, after);
  }
  if (!is_automatic(options)) return;
  try {
    for (std::size_t i = 0; i < choices.kinds.size(); ++i) add_to_own(choices.kinds[i], lines_of(choices.measured[i]));
  } catch (const std::exception& error) {
    log.warn(
        fmt::format("the next start must time algorithms again, since they cannot be kept: {}; --plan-cache FILE "
                    "keeps them elsewhere, and --plan-cache off does not",
                    error.what()));
  }
}

}  // namespace

std::string own_cache_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return *cache == '/' ? (fs::path(cache) / "tutti").string() : "";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? (fs::path(home) / ".cache" / "tutti").string() : "";
}

bool names_plan_cache(const ProcessorOptions& options) {
  return !options.plan_cache.empty() && options.plan_cache != "off" && !is_automatic(options);
}

void adopt_known_choices(World& world, const ProcessorOptions& options, const std::string& of_checkpoint,
                         Backend& backend, const Log& log) {
  run_or_throw_on_all(world, [&] {
    if (!of_checkpoint.empty()) {
      if (backend.load_algorithm_cache(of_checkpoint)) return;
      log.info("the checkpoint's choice of algorithms is for another kind of GPU or library: bits will differ");
    }
    static_cast<void>(backend.load_algorithm_cache(known_choices(options, backend)));
  });
}

void build_with_shared_choices(World& world, const ProcessorOptions& options, Backend& backend, const Log& log,
                               const std::function<void()>& build) {
  const bool measures = backend.memory_space() != MemorySpace::host;
  const auto kinds = all_gather_text(world, measures ? backend.description() : "");
  if (std::ranges::all_of(kinds, [](const std::string& kind) { return kind.empty(); })) {
    return run_or_throw_on_all(world, build);
  }
  const auto rank = static_cast<std::size_t>(world.rank());
  const auto first = static_cast<std::size_t>(std::ranges::find(kinds, kinds[rank]) - kinds.begin());
  std::string measured_here;
  run_or_throw_on_all(world, [&] {
    if (first != rank) return;
    const std::string known = backend.algorithm_cache();
    build();
    measured_here = measured_since(known, backend.algorithm_cache());
  });
  Choices choices{.kinds = kinds,
                  .all = all_gather_text(world, first == rank ? backend.algorithm_cache() : ""),
                  .measured = all_gather_text(world, measured_here)};
  run_or_throw_on_all(world, [&] {
    if (world.rank() == 0) keep(options, choices, log);
    if (first == rank) return;
    backend.load_algorithm_cache(choices.all[first]);
    build();
  });
}

}  // namespace tutti
