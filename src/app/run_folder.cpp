#include "run_folder.hpp"

#include "tutti/base/process.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "option_table.hpp"
#include "output.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <system_error>

namespace tutti {
namespace {

// The processes of a killed job may take a moment to end, on other hosts too.
constexpr double kLockTimeoutSeconds = 20;

// Removes the exit record of an earlier job, and the temporary files of one that was killed while it wrote config.toml.
void remove_leftovers(const std::string& out) {
  const std::string unfinished = options_file(out) + std::string(kTemporaryMark);
  std::error_code failure;
  for (std::filesystem::directory_iterator file(out, failure), end; !failure && file != end; file.increment(failure)) {
    const std::string path = file->path().string();
    std::error_code absent;
    if (path == exit_record_file(out) || path.starts_with(unfinished)) std::filesystem::remove(path, absent);
  }
}

}  // namespace

void make_run_folder(const RunConfig& config, const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (!failure) return;
  throw Error(ErrorSource::save, fmt::format("--out {}: cannot make {}: {}; choose a folder that can be written",
                                             config.output.folder, folder, failure.message()));
}

void refuse_old_checkpoints(const RunConfig& config, const CheckpointStore& store) {
  if (config.output.resume || !store.holds_any()) return;
  throw Error(
      ErrorSource::input,
      fmt::format("--out {} holds checkpoints of an earlier run: add --resume to continue it, or choose another folder",
                  config.output.folder));
}

RunFolder::RunFolder(World& world, const RunConfig& config, const Log& log)
    : store(checkpoints_folder(config.output.folder)) {
  on_rank_0(world, [&] {
    make_run_folder(config, store.folder());
    lock_.emplace(config.output.folder, kLockTimeoutSeconds, log);
    refuse_old_checkpoints(config, store);
    store.clear_leftovers();
    remove_leftovers(config.output.folder);
  });
  owned = OwnedFolder(config.output.folder, broadcast_text(world, lock_ ? lock_->text() : "", 0));
  store = CheckpointStore(store.folder(), [owner = owned] { owner.require(); });
}

void write_exit_record(const OwnedFolder& folder, const ExitRecord& record) {
  if (folder.path().empty() || !folder.loss_reason().empty()) return;
  // Options that are refused do not change how an earlier launch of the run ended.
  const bool has_begun = file_exists(folder.path() + "/metrics.jsonl");
  if (record.status == ExitStatus::usage && has_begun) return;
  const std::string path = exit_record_file(folder.path());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return;
  nlohmann::ordered_json json{{"status", static_cast<int>(record.status)},
                              {"rank", record.rank},
                              {"host", record.host},
                              {"reason", record.reason}};
  if (!record.exclude.empty()) json["exclude"] = record.exclude;
  if (record.last_confirmed_step) json["right_at"] = *record.last_confirmed_step;
  if (record.at) {
    json["phase"] = name_of(record.at->phase);
    json["step"] = record.at->step;
  }
  const std::string text = json_line(json) + "\n";
  const bool is_whole = write_all(file, std::as_bytes(std::span(text))).empty();
  ::close(file);
  if (!is_whole) ::unlink(path.c_str());  // an incomplete record would mislead its readers
}

std::string other_run_text(const RunConfig& config) {
  const std::string path = options_file(config.output.folder);
  if (!file_exists(path) || !file_exists(config.output.folder + "/metrics.jsonl")) return {};
  RunConfig other;
  try {
    other = read_config_text(read_file_text(path), path);
  } catch (const Error&) {
    return {};  // damaged; it is replaced
  }
  if (other.model == config.model && other.data.train == config.data.train) return {};
  return fmt::format(
      "--out {} has the records of a run of {} on {} that saved no checkpoint, and this run of {} on {} "
      "adds its own to the same metrics.jsonl: to keep them apart, give another folder, or remove this "
      "one first",
      config.output.folder, other.model, other.data.train, config.model, config.data.train);
}

std::size_t max_state_bytes(const Network& network) {
  return 4 * network.layout().block_bytes() + (std::size_t{1} << 20);
}

}  // namespace tutti
