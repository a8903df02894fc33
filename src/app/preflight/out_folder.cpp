#include "out_folder.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/folder_lock.hpp"

#include "../output.hpp"
#include "../plan_choices.hpp"
#include "../run_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <system_error>
#include <vector>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// A file with a unique name, since a killed process may have left one behind. It is removed at the end of the scope.
class ProbeFile {
 public:
  explicit ProbeFile(const std::string& folder) : path_(folder + "/.seen-by-all-XXXXXX") {
    const Descriptor file(::mkostemp(path_.data(), O_CLOEXEC));
    if (file) return;
    throw Error(ErrorSource::save, fmt::format("--out {}: cannot write there: {}; choose a folder that can be written",
                                               folder, std::strerror(errno)));
  }
  ProbeFile(const ProbeFile&) = delete;
  ProbeFile& operator=(const ProbeFile&) = delete;
  ~ProbeFile() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Removes, at the end of the scope, this folder and those of its parents that did not exist at its beginning.
class TrialFolder {
 public:
  explicit TrialFolder(const std::string& folder) {
    std::error_code unseen;  // for example in a folder that this user may not search
    for (fs::path missing = fs::absolute(folder); !fs::exists(missing, unseen); missing = missing.parent_path()) {
      made_.push_back(missing);
    }
  }
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;
  ~TrialFolder() {
    // Does nothing if another process has put something there, nor for a dangling link.
    for (const fs::path& folder : made_) ::rmdir(folder.c_str());
  }

 private:
  std::vector<fs::path> made_;  // the innermost first
};

void check_room(const RunConfig& config, const CheckpointPlan& plan, Findings& findings) {
  std::error_code unknown;
  const fs::space_info room = fs::space(config.output.folder, unknown);
  if (unknown || plan.bytes == 0 || plan.saves == 0) return;
  constexpr std::int64_t kOtherFiles = 32 << 10;  // metrics and options, at their beginning
  const double free = mebi(room.available);
  const double each = mebi(plan.bytes);
  const auto available = static_cast<std::int64_t>(std::min<std::uintmax_t>(room.available, INT64_MAX));
  const std::int64_t fit = std::max<std::int64_t>(available - kOtherFiles, 0) / plan.bytes;
  const std::int64_t old =
      config.output.resume ? std::ssize(CheckpointStore(checkpoints_folder(config.output.folder)).steps()) : 0;
  // The older checkpoints that are still there during the last save.
  const std::int64_t older = old + plan.saves - 1;
  const std::int64_t keeps =
      config.output.keep_checkpoints == 0 ? older : config.output.keep_checkpoints + config.trainer.checkpoint_at_best;
  const std::int64_t max = std::min(keeps, older) + 1;
  const std::string remedy = config.output.keep_checkpoints > 2 && max > 3 ? ", or give --keep-checkpoints 2" : "";
  const std::string there = fmt::format("--out {}: {:.1f} MiB are free", config.output.folder, free);
  const double wanted = each * static_cast<double>(max - old) + 0.1;
  if (old + fit < std::min<std::int64_t>(max, 2 + config.trainer.checkpoint_at_best)) {
    findings.fail(
        ErrorSource::save,
        "{}, and a checkpoint takes about {:.1f} MiB and is deleted only after the next one is verified: make "
        "room for {:.1f} MiB, or choose another disk",
        there, each, wanted);
  } else if (old + fit < max) {
    findings.warn(
        "{}, room for {} checkpoints of about {:.1f} MiB, and this run needs {}, one more than it keeps: the oldest "
        "will "
        "be deleted early; make room for {:.1f} MiB{}",
        there, fit, each, max - old, wanted, remedy);
  }
}

// Whether this is an existing file of another type, such as a device or a pipe. It is not opened, since the reader of a
// pipe would see it closed.
bool is_stream(const std::string& path) {
  std::error_code unseen;
  const fs::file_status file = fs::status(path, unseen);
  return fs::exists(file) && !fs::is_regular_file(file) && !fs::is_directory(file);
}

// For a file that is written whole and then renamed. An empty path names none.
void refuse_unmakeable(const char* option, const std::string& path) {
  if (path.empty()) return;
  if (is_folder(path)) {
    throw Error(ErrorSource::save, fmt::format("--{} {}: this is a folder: give another name", option, path));
  }
  if (!is_stream(path)) AtomicFile{path};
}

// For a file to which lines are appended.
void require_appendable(const char* option, const std::string& path) {
  if (!is_plain_file(path)) return refuse_unmakeable(option, path);
  LineFile{path};
}

// Its error becomes a finding. Returns whether it succeeded. Collective.
bool attempt_on_rank_0(World& world, Findings& findings, const std::function<void()>& work) {
  return findings.attempt([&] { on_rank_0(world, work); });
}

}  // namespace

Findings check_sharing(World& world, const std::string& folder, bool saves_several_files) {
  Findings findings;
  std::optional<ProbeFile> probe;
  if (!attempt_on_rank_0(world, findings, [&] { probe.emplace(folder); })) return findings;
  const std::string path = broadcast_text(world, probe ? probe->path() : "", 0);
  Findings mine;
  if (!file_exists(path)) {
    const std::string text = fmt::format("cannot see what rank 0 writes to --out {}", folder);
    if (saves_several_files) {
      mine.fail(ErrorSource::save, "{}, and more than one host saves there: choose a folder that all of them share",
                text);
    } else {
      mine.warn("{}, so that the run can be resumed from that host alone: choose a folder that all share", text);
    }
  }
  return gather(world, mine);
}

Findings check_files(World& world, const RunConfig& config) {
  Findings findings;
  attempt_on_rank_0(world, findings, [&] { refuse_unmakeable("trace", config.output.trace); });
  attempt_on_rank_0(world, findings, [&] { require_appendable("sample-log", config.output.sample_log); });
  attempt_on_rank_0(world, findings, [&] {
    // An existing cache may be complete and read-only.
    if (names_plan_cache(config.processor) && !is_plain_file(config.processor.plan_cache))
      refuse_unmakeable("plan-cache", config.processor.plan_cache);
  });
  return findings;
}

Findings check_out_folder(World& world, const RunConfig& config, const CheckpointPlan& checkpoints) {
  Findings findings;
  const CheckpointStore store(checkpoints_folder(config.output.folder));
  std::optional<TrialFolder> trial;
  const bool is_made = attempt_on_rank_0(world, findings, [&] {
    trial.emplace(store.folder());
    make_run_folder(config, store.folder());
  });
  if (!is_made) return findings;
  findings.add(check_sharing(world, config.output.folder, checkpoints.is_split));
  attempt_on_rank_0(world, findings, [&] { refuse_locked(config.output.folder); });
  attempt_on_rank_0(world, findings, [&] { refuse_old_checkpoints(config, store); });
  findings.add(check_files(world, config));
  Findings mine;
  if (world.rank() == 0) check_room(config, checkpoints, mine);
  findings.add(gather(world, mine));
  return findings;
}

}  // namespace tutti
