#include "shared_status.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>

namespace tutti {
namespace {

static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<Phase>::is_always_lock_free &&
              std::atomic<RankEnd>::is_always_lock_free);

constexpr double kAliveSeconds = 1;  // a watch thread without a tick for this long is not alive
constexpr double kBusyCores = 0.05;  // a waiting rank uses less

// The stat line in /proc of a process or a thread, from the state field on; empty: it does not exist.
std::string stat_of(const std::string& folder) {
  std::ifstream file(folder + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(") ");  // a name may contain any character
  return name_end == std::string::npos ? "" : line.substr(name_end + 2);
}

// Whether any of its threads waits for a disk.
bool waits_for_disk(pid_t process) {
  std::error_code failure;
  for (std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", process), failure), end;
       !failure && thread != end; thread.increment(failure)) {
    if (stat_of(thread->path().string()).starts_with('D')) return true;
  }
  return false;
}

std::uint64_t disk_bytes(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/io", process));
  std::uint64_t bytes = 0;
  std::string name;
  for (std::uint64_t value = 0; file >> name >> value;) {
    if (name == "read_bytes:" || name == "write_bytes:") bytes += value;
  }
  return bytes;
}

double core_wait_seconds(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/schedstat", process));
  std::uint64_t running_ns = 0;
  std::uint64_t waiting_ns = 0;
  file >> running_ns >> waiting_ns;
  return static_cast<double>(waiting_ns) * 1e-9;
}

Activity activity_between(const ProcessReading& begin, const ProcessReading& end, double seconds) {
  if (end.state == 'T') return Activity::stopped;
  if (end.state == 't') return Activity::in_debugger;
  const bool waited_for_core = end.core_wait_seconds - begin.core_wait_seconds > seconds / 2;
  const bool computed = end.cpu_seconds - begin.cpu_seconds > kBusyCores * seconds;
  // The system counts a wait when it ends; a wait in progress shows only in the state.
  if (waited_for_core || (!computed && end.state == 'R')) return Activity::waiting_for_core;
  if (computed) return Activity::computing;
  return end.bytes != begin.bytes ? Activity::using_disk : Activity::idle;
}

bool exists(pid_t process) { return ::kill(process, 0) == 0 || errno != ESRCH; }

}  // namespace

std::optional<ProcessReading> read_process(pid_t process) {
  std::istringstream fields(stat_of(fmt::format("/proc/{}", process)));
  ProcessReading reading;
  fields >> reading.state;
  std::int64_t value = 0;
  double ticks = 0;
  constexpr int kUserTime = 14, kSystemTime = 15, kStart = 22;
  for (int field = 4; field <= kStart && fields >> value; ++field) {
    if (field == kUserTime || field == kSystemTime) ticks += static_cast<double>(value);
    if (field == kStart) reading.started = static_cast<std::uint64_t>(value);
  }
  if (!fields) return std::nullopt;
  static const auto ticks_per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  reading.cpu_seconds = ticks / ticks_per_second;
  reading.core_wait_seconds = core_wait_seconds(process);
  reading.bytes = disk_bytes(process);
  return reading;
}

Activity ActivityMeter::measure(pid_t process, std::int64_t now_ns, bool quiet, double interval_seconds) {
  if (!quiet) {
    begun_.reset();
    return activity_ = Activity::unknown;
  }
  const double seconds = static_cast<double>(now_ns - begun_ns_) * 1e-9;
  if (begun_ && seconds < interval_seconds) return activity_;
  const std::optional<ProcessReading> reading = read_process(process);
  if (!reading || reading->state == 'Z' || reading->state == 'X') return activity_ = Activity::gone;
  if (begun_) activity_ = activity_between(*begun_, *reading, seconds);
  if (!begun_ && reading->state == 'T') activity_ = Activity::stopped;
  if (activity_ == Activity::idle && waits_for_disk(process)) activity_ = Activity::waiting_for_disk;
  begun_ = reading;
  begun_ns_ = now_ns;
  return activity_;
}

SharedStatus::SharedStatus(World& world)
    : memory_(world.node_memory(sizeof(SharedStatusHeader) +
                                static_cast<std::size_t>(world.local_size()) * sizeof(RankSlot))),
      head_(static_cast<SharedStatusHeader*>(memory_.data())),
      slots_(reinterpret_cast<RankSlot*>(head_ + 1), static_cast<std::size_t>(world.local_size())),
      own_(static_cast<std::size_t>(world.local_rank())),
      states_(slots_.size()),
      seen_(slots_.size()) {
  if (own_ == 0) std::construct_at(head_)->first_rank = world.rank();
  RankSlot* const slot = std::construct_at(&own());
  slot->rank = world.rank();
  slot->process = ::getpid();
  if (const auto self = read_process(slot->process)) slot->started = self->started;
  slot->tick_ns = now_ns();
  world.node_barrier();
}

void SharedStatus::begin(std::int64_t now_ns) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    states_[i].rank = slots_[i].rank;
    seen_[i].changed_ns = now_ns;
    // Ranks in separate containers do not see each other's processes.
    const auto process = read_process(slots_[i].process);
    seen_[i].visible = process && process->started == slots_[i].started;
  }
}

bool SharedStatus::is_host_leader(std::int64_t now_ns) const {
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const RankSlot& slot = slots_[i];
    if (i == own_) break;
    const bool beats = static_cast<double>(now_ns - slot.tick_ns) * 1e-9 < kAliveSeconds;
    if (slot.end == RankEnd::none && beats && (!seen_[i].visible || exists(slot.process))) return false;
  }
  return slots_[own_].end == RankEnd::none;
}

const std::vector<RankState>& SharedStatus::read(std::int64_t now_ns) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const RankSlot& slot = slots_[i];
    RankState& state = states_[i];
    const std::uint64_t before = state.progress_count();
    state.progress = slot.status.progress.load(std::memory_order_acquire);
    state.phase = slot.status.phase;
    state.step = slot.status.step;
    // `done` is read before `begun`, so that a rank never seems to have done more than it has begun.
    state.done = slot.collectives.done.load(std::memory_order_acquire);
    state.begun = slot.collectives.begun;
    state.end = slot.end;
    if (state.progress_count() != before) seen_[i].changed_ns = now_ns;
    state.quiet_seconds = static_cast<double>(now_ns - seen_[i].changed_ns) * 1e-9;
    if (seen_[i].visible && state.end == RankEnd::none) {
      state.activity = seen_[i].meter.measure(slot.process, now_ns, state.quiet_seconds >= quiet_threshold_,
                                              std::max(ActivityMeter::kShortestSeconds, quiet_threshold_ / 2));
    }
  }
  return states_;
}

const RankState* SharedStatus::find_gone(std::int64_t now_ns) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const RankSlot& slot = slots_[i];
    if (!seen_[i].visible || slot.end != RankEnd::none || exists(slot.process)) continue;
    // It may have ended in order since the first check.
    if (slot.end != RankEnd::none) continue;
    read(now_ns);
    states_[i].activity = Activity::gone;
    return &states_[i];
  }
  return nullptr;
}

}  // namespace tutti
