#include "kept_states.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "output.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <system_error>
#include <vector>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMemory = "/dev/shm";
constexpr std::chrono::hours kAbandoned{24};

std::string stem() { return fmt::format("tutti_kept-{}-", ::geteuid()); }

// Others may write to /dev/shm, too.
bool is_ours(const std::string& folder) {
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

// A cleaner of /dev/shm may remove the folder of a run at any time. Throws a save error.
void make_own(const std::string& folder) {
  std::error_code failure;
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) failure = {errno, std::generic_category()};
  if (!failure && is_ours(folder)) return;
  throw Error(ErrorSource::save, fmt::format("--keep-steps: cannot make the folder '{}': {}; or give --keep-steps off",
                                             folder, failure ? failure.message() : "it belongs to another user"));
}

struct Launch {
  std::string hash;  // of its record
  std::string options;
  std::int64_t begin = 0;                                            // step
  std::int64_t right_to = std::numeric_limits<std::int64_t>::max();  // later steps may be wrong, by an audit
};

std::vector<Launch> launches_of(const std::string& out) {
  std::vector<Launch> launches;
  const std::string path = out + "/metrics.jsonl";
  if (!is_plain_file(path)) return launches;
  for (const std::string& line : lines_of(read_file_text(path))) {
    const bool is_audit = line.starts_with(R"({"event":"audit")") && !launches.empty();
    if (!is_audit && !line.starts_with(R"({"event":"run")")) continue;
    try {
      const auto record = nlohmann::json::parse(line);
      if (!is_audit) {
        launches.push_back({record.at("hash"), record.at("configuration"), record.at("step")});
      } else if (record.at("repeats").get<bool>()) {
        const std::int64_t right_to = std::max(record.at("right_at").get<std::int64_t>(), launches.back().begin);
        for (Launch& earlier : launches) earlier.right_to = std::min(earlier.right_to, right_to);
      }
    } catch (const nlohmann::json::exception&) {
      continue;  // damaged
    }
  }
  return launches;
}

// By the hash of its record, the last step of each launch that belongs to the run's history. Launches with other
// options may have trained other weights after the step at which the next one began.
std::map<std::string, std::int64_t> last_steps(const std::vector<Launch>& launches) {
  std::map<std::string, std::int64_t> steps;
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = launches.size(); i-- > 0;) {
    if (i + 1 < launches.size() && launches[i].options != launches[i + 1].options) {
      last = std::min(last, launches[i + 1].begin);
    }
    steps[launches[i].hash] = std::min(last, launches[i].right_to);
  }
  return steps;
}

// Removes states of runs that were never continued.
void remove_abandoned() {
  std::error_code failure;
  for (fs::directory_iterator entry(kMemory, failure), end; !failure && entry != end; entry.increment(failure)) {
    const std::string path = entry->path().string();
    std::error_code absent;
    if (!entry->path().filename().string().starts_with(stem()) || !is_ours(path)) continue;
    const auto changed = fs::last_write_time(path, absent);
    if (!absent && fs::file_time_type::clock::now() - changed > kAbandoned) fs::remove_all(path, absent);
  }
}

// Bytes that are free there, or have been used for earlier states.
std::int64_t room(const std::string& folder) {
  std::error_code unknown;
  const fs::space_info space = fs::space(kMemory, unknown);
  if (unknown || ::access(kMemory, W_OK | X_OK) != 0) return 0;
  if (space.capacity == 0) return std::numeric_limits<std::int64_t>::max();  // no limit
  auto bytes = static_cast<std::int64_t>(space.available);
  for (fs::directory_iterator entry(folder, unknown), end; !unknown && entry != end; entry.increment(unknown)) {
    std::error_code unseen;
    const auto of_file = entry->file_size(unseen);
    if (!unseen) bytes += static_cast<std::int64_t>(of_file);
  }
  return bytes;
}

}  // namespace

KeptStates::KeptStates(World& world, const std::string& out) {
  std::string absolute;
  on_rank_0(world, [&] { absolute = fs::weakly_canonical(fs::absolute(out)).string(); });
  out_ = broadcast_text(world, absolute, 0);
  if (world.local_rank() != 0) return;
  folder_ = fmt::format("{}/{}{:016x}-{}", kMemory, stem(), hash64(out_), world.host());
}

std::optional<LoadedCheckpoint> KeptStates::newest(World& world, std::int64_t after, const Log& log) const {
  std::string text;
  on_rank_0(world, [&] {
    for (const auto& [hash, step] : last_steps(launches_of(out_))) text += fmt::format("{} {}\n", hash, step);
  });
  std::map<std::string, std::int64_t> steps;
  std::istringstream words(broadcast_text(world, text, 0));
  for (std::string hash; words >> hash;) words >> steps[hash];
  return newest_of_ranks(world, is_ours(folder_) ? folder_ : "", after, steps, log);
}

void KeptStates::begin(std::int64_t step) const {
  if (folder_.empty()) return;
  remove_abandoned();
  make_own(folder_);
  std::error_code failure;
  const CheckpointStore store = this->store();
  store.clear_leftovers();
  for (const std::int64_t later : store.steps()) {
    if (later <= step) continue;
    const fs::path file = store.path_of(later);
    fs::remove(fs::path(file).replace_extension(".json"), failure);
    fs::remove(file, failure);
  }
}

CheckpointStore KeptStates::store() const {
  return CheckpointStore(folder_, [folder = folder_] { make_own(folder); });
}

void KeptStates::remove() const {
  std::error_code absent;
  if (is_ours(folder_)) fs::remove_all(folder_, absent);
}

Findings KeptStates::check_room(const std::string& host, std::int64_t state_bytes, const KeepInterval& interval) const {
  Findings findings;
  const std::int64_t left = room(folder_);
  if (folder_.empty() || kKeptAtOnce * state_bytes <= left) return findings;
  const std::string text = fmt::format("{}: {} states of {:.1f} MiB need more than the {:.1f} MiB that are free in {}",
                                       host, kKeptAtOnce, mebi(state_bytes), mebi(left), kMemory);
  const char* const remedy = "make it larger (mount -o remount,size=.. /dev/shm; in a container --shm-size)";
  if (interval.is_automatic) {
    findings.warn("{}, so that no state is kept in memory: {}", text, remedy);
  } else {
    findings.fail(ErrorSource::input, "--keep-steps: {}: {}, or give --keep-steps off", text, remedy);
  }
  return findings;
}

}  // namespace tutti
