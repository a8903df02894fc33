#include "run_folder.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/base/unique_handle.hpp"

#include "output.hpp"
#include "preflight/out_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

// The processes of a killed job may take a moment to end, on other hosts too.
constexpr double kLockTimeoutSeconds = 20;

std::string record_of(const SaveReport& report, double stall_seconds) {
  nlohmann::ordered_json json{{"event", "checkpoint"},
                              {"step", report.step},
                              {"file", std::filesystem::path(report.path).filename().string()},
                              {"bytes", report.bytes},
                              {"seconds", report.seconds},
                              {"stall_seconds", stall_seconds}};
  if (!report.evicted_steps.empty()) json["given_up"] = report.evicted_steps;
  if (!report.failure.empty()) json["failure"] = report.failure;
  return json_line(json);
}

}  // namespace

RunFolder::RunFolder(World& world, const RunConfig& config, const Log& log) : store_(config.out + "/checkpoints") {
  on_rank_0(world, [&] {
    make_run_folder(config, store_.folder());
    lock_.emplace(config.out, kLockTimeoutSeconds, log);
    refuse_old_checkpoints(config, store_);
    store_.clear_leftovers();
    std::error_code absent;
    std::filesystem::remove(std::filesystem::path(config.out) / "exit.json", absent);
  });
  owned_ = OwnedFolder(config.out, broadcast_text(world, lock_ ? lock_->text() : "", 0));
  store_ = CheckpointStore(store_.folder(), [owned = owned_] { owned.require(); });
}

void write_exit_record(const OwnedFolder& folder, const ExitRecord& record) {
  if (folder.path().empty() || !folder.loss_reason().empty()) return;
  const std::string path = folder.path() + "/exit.json";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return;
  nlohmann::ordered_json json{{"status", static_cast<int>(record.status)},
                              {"rank", record.rank},
                              {"host", record.host},
                              {"reason", record.reason}};
  if (record.at) {
    json["phase"] = name_of(record.at->phase);
    json["step"] = record.at->step;
  }
  const std::string text = json_line(json) + "\n";
  const ssize_t written = retry_on_eintr([&] { return ::write(file, text.data(), text.size()); });
  ::close(file);
  if (written != std::ssize(text)) ::unlink(path.c_str());  // an incomplete record would mislead its readers
}

std::size_t max_state_bytes(const Network& network) {
  return 3 * network.layout().block_bytes() + (std::size_t{1} << 20);
}

// States above 2 GiB are saved in more than one file, by the first ranks of the hosts.
std::optional<FileShard> file_shard(World& world, std::size_t state_bytes) {
  constexpr std::size_t kMaxBytesPerFile = std::size_t{2} << 30;
  const bool leads = world.local_rank() == 0;
  const auto leading = all_gather_doubles(world, {leads ? 1.0 : 0.0});
  int leaders = 0;
  int leaders_before = 0;
  for (std::size_t rank = 0; rank < leading.size(); ++rank) {
    if (leading[rank].front() == 0) continue;
    if (static_cast<int>(rank) < world.rank()) ++leaders_before;
    ++leaders;
  }
  const std::size_t wanted = std::max<std::size_t>(1, (state_bytes + kMaxBytesPerFile - 1) / kMaxBytesPerFile);
  const int files = static_cast<int>(std::min<std::size_t>(wanted, static_cast<std::size_t>(leaders)));
  if (!leads || leaders_before >= files) return std::nullopt;
  return FileShard{.file = leaders_before, .files = files};
}

RunCheckpoints::RunCheckpoints(World& world, const RunConfig& config, const CheckpointStore& store,
                               std::optional<FileShard> share, RunControl& control)
    : world_(world), log_(world.rank(), world.host(), config.quiet), control_(control), folder_(store.folder()) {
  if (!share) return;
  writer_.emplace(
      store,
      WriterOptions{.shard = *share, .keep_checkpoints = config.keep_checkpoints, .keep_best = config.keep_best});
}

void RunCheckpoints::save(TrainState state, double copy_seconds) {
  control_.on_snapshot();
  if (!writer_) return;
  const Stopwatch watch;
  const std::int64_t step = state.progress.step;
  writer_->save(std::move(state));
  stalls_.push_back({step, copy_seconds + watch.seconds()});
}

void RunCheckpoints::report(const Record& record) {
  if (!writer_) return;
  for (const SaveReport& save : writer_->take_reports()) report_save(save, record);
}

void RunCheckpoints::report_save(const SaveReport& report, const Record& record) {
  if (world_.rank() == 0) record(record_of(report, stall_at(report.step)));
  if (!report.evicted_steps.empty()) {
    log_.warn(fmt::format("evicted {} of step {} to free space for step {}: {}",
                          plural(report.evicted_steps.size(), "checkpoint"), fmt::join(report.evicted_steps, ", "),
                          report.step, report.eviction_reason));
  }
  if (report.failure.empty()) {
    good_saves_.push_back(report.seconds);
    bytes_ = report.bytes;
    control_.saved(report.seconds + stall_at(report.step));
  } else {
    last_failure_ = report.failure;
    log_.warn(fmt::format("checkpoint of step {} is not saved; earlier ones, if any, are kept: {}", report.step,
                          report.failure));
  }
  if (!report.prune_failure.empty()) log_.warn(report.prune_failure);
}

double RunCheckpoints::stall_at(std::int64_t step) const {
  const auto stall = std::ranges::find(stalls_.rbegin(), stalls_.rend(), step, &Stall::step);
  return stall == stalls_.rend() ? 0 : stall->seconds;
}

void RunCheckpoints::finish(const Record& record) {
  run_or_throw_on_all(world_, [&] {
    if (!writer_) return;
    report(record);
    writer_->finish();
    report(record);
    if (writer_->newest_is_saved()) return;
    throw Error(ErrorSource::save, fmt::format("the last state could not be saved: {}", last_failure_));
  });
  log_cost();
}

void RunCheckpoints::log_cost() const {
  if (good_saves_.empty()) return;
  std::vector<double> stalls;
  for (const Stall& stall : stalls_) stalls.push_back(stall.seconds);
  log_.info(
      fmt::format("{} of {:.1f} MiB saved in {}: median save time {:.3f} s (in the background), "
                  "median pause of the training {:.3f} s, longest pause {:.3f} s",
                  plural(good_saves_.size(), "checkpoint"), mebi(bytes_), folder_, quartiles_of(good_saves_).median,
                  quartiles_of(stalls).median, std::ranges::max(stalls)));
}

}  // namespace tutti
