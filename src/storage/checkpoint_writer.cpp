#include "tutti/storage/checkpoint_writer.hpp"

#include "tutti/base/process.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/storage/atomic_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

// Runs `action` and returns the text of its error; empty on success.
template <class Action>
std::string failure_of(Action action) {
  try {
    action();
    return {};
  } catch (const std::bad_alloc&) {
    return "there is not enough memory for a copy of the state";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

// States above 2 GiB are saved in more than one file, by the first ranks of the hosts.
std::optional<FileShard> file_shard(World& world, std::size_t bytes) {
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
  const std::size_t wanted = std::max<std::size_t>(1, (bytes + kMaxBytesPerFile - 1) / kMaxBytesPerFile);
  const int files = static_cast<int>(std::min<std::size_t>(wanted, static_cast<std::size_t>(leaders)));
  if (!leads || leaders_before >= files) return std::nullopt;
  return FileShard{.file = leaders_before, .files = files};
}

void CheckpointWriter::save(TrainState state) {
  wait();
  // What could not be saved is tried again if it is still the best.
  if (options_.keep_best && unsaved_ && unsaved_->progress.step == state.progress.best.step) finish();
  unsaved_ = std::move(state);
  start();
}

// Until wait(), `unsaved_` belongs to the thread.
void CheckpointWriter::start() {
  try {
    saving_ = std::async(std::launch::async, [this] {
      lower_priority();
      SaveReport report = attempt(*unsaved_);
      if (report.failure.empty()) unsaved_.reset();
      return report;
    });
  } catch (const std::system_error& error) {
    const std::int64_t step = unsaved_->progress.step;
    reports_.push_back(
        {.step = step,
         .path = store_.path_of(step),
         .failure = fmt::format("cannot start a thread for it: {}; check ulimit -u and the memory of the "
                                "control group",
                                error.what())});
  }
}

void CheckpointWriter::wait() {
  if (saving_.valid()) reports_.push_back(saving_.get());
}

std::vector<SaveReport> CheckpointWriter::take_reports() {
  if (saving_.valid() && saving_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) wait();
  return std::exchange(reports_, {});
}

void CheckpointWriter::finish() {
  wait();
  if (!unsaved_) return;
  start();
  wait();
}

SaveReport CheckpointWriter::attempt(const TrainState& state) {
  SaveReport report{.step = state.progress.step, .path = store_.path_of(state.progress.step)};
  const Stopwatch watch;
  const double cpu_before = thread_cpu_seconds();
  const KeepRule keep{.newest = options_.keep_checkpoints,
                      .best_step = options_.keep_best ? state.progress.best.step : -1,
                      .last_step = report.step};
  report.failure = failure_of([&] {
    while (true) {
      try {
        report.bytes = store_.save(state, options_.shard, &buffer_).bytes;
        return;
      } catch (const DiskFull& failure) {
        // Evicts the oldest checkpoints until the new one fits.
        const auto step = store_.evict_oldest(keep);
        if (!step) throw;
        report.evicted_steps.push_back(*step);
        if (report.eviction_reason.empty()) report.eviction_reason = failure.what();
      }
    }
  });
  report.seconds = watch.seconds();
  if (report.failure.empty() && options_.shard.file == 0) {
    report.prune_failure = failure_of([&] { store_.prune(keep); });
  }
  report.cpu_seconds = thread_cpu_seconds() - cpu_before;
  return report;
}

}  // namespace tutti
