#include "process_activity.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace tutti {
namespace {

constexpr double kBusyCores = 0.05;  // a rank that waits uses less

// From its state on, what /proc tells of a process or a thread; empty: it is not there.
std::string stat_of(const std::string& folder) {
  std::ifstream file(folder + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(") ");  // a name may hold anything
  return name_end == std::string::npos ? "" : line.substr(name_end + 2);
}

// Whoever saves or loads beside the first thread does so too.
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
  if (end.state == 't') return Activity::traced;
  const bool waited_for_core = end.core_wait_seconds - begin.core_wait_seconds > seconds / 2;
  const bool computed = end.cpu_seconds - begin.cpu_seconds > kBusyCores * seconds;
  // A wait that goes on is told by the state alone.
  if (waited_for_core || (!computed && end.state == 'R')) return Activity::waiting_for_core;
  if (computed) return Activity::computing;
  return end.bytes != begin.bytes ? Activity::using_disk : Activity::idle;
}

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

bool exists(pid_t process) { return ::kill(process, 0) == 0 || errno != ESRCH; }

Activity ActivityMeter::measure(pid_t process, std::int64_t now_ns, bool quiet, double stretch_seconds) {
  if (!quiet) {
    begun_.reset();
    return activity_ = Activity::unknown;
  }
  const double seconds = static_cast<double>(now_ns - begun_ns_) * 1e-9;
  if (begun_ && seconds < stretch_seconds) return activity_;
  const std::optional<ProcessReading> reading = read_process(process);
  if (!reading || reading->state == 'Z' || reading->state == 'X') return activity_ = Activity::gone;
  if (begun_) activity_ = activity_between(*begun_, *reading, seconds);
  if (!begun_ && reading->state == 'T') activity_ = Activity::stopped;
  if (activity_ == Activity::idle && waits_for_disk(process)) activity_ = Activity::waiting_for_disk;
  begun_ = reading;
  begun_ns_ = now_ns;
  return activity_;
}

}  // namespace tutti
