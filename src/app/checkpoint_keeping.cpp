#include "checkpoint_keeping.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/quartiles.hpp"
#include "tutti/base/stopwatch.hpp"

#include "plural.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

namespace tutti {
namespace {

std::string record_of(const SaveReport& report, double stall_seconds) {
  nlohmann::ordered_json json{{"event", "checkpoint"},
                              {"step", report.step},
                              {"file", std::filesystem::path(report.path).filename().string()},
                              {"bytes", report.bytes},
                              {"seconds", report.seconds},
                              {"stall_seconds", stall_seconds}};
  if (!report.given_up.empty()) json["given_up"] = report.given_up;
  if (!report.failure.empty()) json["failure"] = report.failure;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::size_t most_state_bytes(const Network& network) {
  return 3 * network.layout().block_bytes() + (std::size_t{1} << 20);
}

std::optional<FileShare> file_share(World& world, std::size_t state_bytes, std::size_t most_bytes_per_file) {
  const std::uint8_t leads = world.local_rank() == 0 ? 1 : 0;
  int leaders = 0;
  int leaders_before = 0;
  const auto all = world.all_gather(std::as_bytes(std::span(&leads, 1)));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == std::byte{0}) continue;
    if (static_cast<int>(rank) < world.rank()) ++leaders_before;
    ++leaders;
  }
  const std::size_t wanted = std::max<std::size_t>(1, (state_bytes + most_bytes_per_file - 1) / most_bytes_per_file);
  const int files = static_cast<int>(std::min<std::size_t>(wanted, static_cast<std::size_t>(leaders)));
  if (leads == 0 || leaders_before >= files) return std::nullopt;
  return FileShare{.file = leaders_before, .files = files};
}

CheckpointKeeping::CheckpointKeeping(World& world, const RunConfig& config, const CheckpointStore& store,
                                     std::optional<FileShare> share, RunControl& control)
    : world_(world), log_(world.rank(), world.host(), config.quiet), control_(control), folder_(store.folder()) {
  if (!share) return;
  writer_.emplace(
      store,
      WriterOptions{.share = *share, .keep_checkpoints = config.keep_checkpoints, .keep_best = config.keep_best});
}

void CheckpointKeeping::take(TrainState state, double copy_seconds) {
  control_.took_state();
  if (!writer_) return;
  const Stopwatch watch;
  const std::int64_t step = state.progress.step;
  writer_->save(std::move(state));
  stalls_.push_back({step, copy_seconds + watch.seconds()});
}

void CheckpointKeeping::tell(const Record& record) {
  if (!writer_) return;
  for (const SaveReport& report : writer_->take_reports()) tell_of(report, record);
}

void CheckpointKeeping::tell_of(const SaveReport& report, const Record& record) {
  if (world_.rank() == 0) record(record_of(report, stall_at(report.step)));
  if (!report.given_up.empty()) {
    log_.warn(fmt::format("gave up the oldest {}, of step {}, to make room for that of step {}: {}",
                          plural(report.given_up.size(), "checkpoint"), fmt::join(report.given_up, ", "), report.step,
                          report.no_room));
  }
  if (report.failure.empty()) {
    good_saves_.push_back(report.seconds);
    bytes_ = report.bytes;
    control_.saved(report.seconds + stall_at(report.step));
  } else {
    last_failure_ = report.failure;
    log_.warn(fmt::format("checkpoint of step {} is not saved, those before it stay: {}", report.step, report.failure));
  }
  if (!report.prune_failure.empty()) log_.warn(report.prune_failure);
}

double CheckpointKeeping::stall_at(std::int64_t step) const {
  const auto stall = std::ranges::find(stalls_.rbegin(), stalls_.rend(), step, &Stall::step);
  return stall == stalls_.rend() ? 0 : stall->seconds;
}

void CheckpointKeeping::finish(const Record& record) {
  run_agreed(world_, [&] {
    if (!writer_) return;
    tell(record);
    writer_->finish();
    tell(record);
    if (writer_->newest_is_saved()) return;
    throw Error(ErrorSource::save, fmt::format("the last state could not be saved: {}", last_failure_));
  });
  tell_cost();
}

void CheckpointKeeping::tell_cost() const {
  if (good_saves_.empty()) return;
  std::vector<double> stalls;
  for (const Stall& stall : stalls_) stalls.push_back(stall.seconds);
  log_.note(
      fmt::format("{} of {:.1f} MiB in {}: {:.3f} s each beside training, which stood still for "
                  "{:.3f} s ({:.3f} s at most)",
                  plural(good_saves_.size(), "checkpoint"), static_cast<double>(bytes_) / 0x1p20, folder_,
                  quartiles_of(good_saves_).median, quartiles_of(stalls).median, std::ranges::max(stalls)));
}

}  // namespace tutti
