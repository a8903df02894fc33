#include "tutti/storage/folder_lock.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/storage/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

std::string lock_file(const std::string& folder) { return folder + "/lock"; }

constexpr std::chrono::milliseconds kRetryInterval{50};
constexpr std::string_view kJob = ", Slurm job ";
constexpr std::string_view kRestart = " restart ";

// Describes the holder of a lock: "host n1, process 17", and under Slurm ", Slurm job 4711 restart 2".
std::string holder_text() {
  std::string text = fmt::format("host {}, process {}", host_name(), ::getpid());
  const char* job = std::getenv("SLURM_JOB_ID");
  const char* restart = std::getenv("SLURM_RESTART_COUNT");  // not set at a job's first start
  if (job != nullptr) text += fmt::format("{}{}{}{}", kJob, job, kRestart, restart != nullptr ? restart : "0");
  return text;
}

struct SlurmStart {
  std::string job;  // empty: not under Slurm
  int restart = 0;
};

SlurmStart slurm_start(const std::string& text) {
  SlurmStart start;
  const auto at = text.find(kJob);
  if (at == text.npos) return start;
  std::istringstream words(text.substr(at + kJob.size()));
  std::string restart;
  words >> start.job >> restart >> start.restart;
  return start;
}

bool is_later_start_of_same_job(const std::string& own, const std::string& holder) {
  const SlurmStart ours = slurm_start(own);
  const SlurmStart theirs = slurm_start(holder);
  return !ours.job.empty() && ours.job == theirs.job && ours.restart > theirs.restart;
}

struct flock lock_of_all() {
  struct flock whole_file {};
  whole_file.l_type = F_WRLCK;
  whole_file.l_whence = SEEK_SET;
  return whole_file;
}

// Does not block on a pipe, nor follow a link to a file that must not be truncated.
constexpr int kLockOpenFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

bool is_held(int error) { return error == EAGAIN || error == EACCES; }

// Returns 0 or the error number. The lock belongs to this open file description, so closing another descriptor of the
// file does not release it.
int try_lock_until(int descriptor, Clock::time_point deadline) {
  while (true) {
    struct flock whole_file = lock_of_all();
    if (retry_on_eintr([&] { return ::fcntl(descriptor, F_OFD_SETLK, &whole_file); }) == 0) return 0;
    const int error = errno;
    if (!is_held(error) || Clock::now() >= deadline) return error;
    std::this_thread::sleep_for(kRetryInterval);
  }
}

Descriptor open_lock(const std::string& path) {
  Descriptor lock(retry_on_eintr([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | kLockOpenFlags, 0666); }));
  if (!lock) fail_saving(path, "opening", errno);
  struct stat status {};
  if (::fstat(lock.get(), &status) != 0 || !S_ISREG(status.st_mode)) fail_saving(path, "opening", EEXIST);
  return lock;
}

// The file's contents; empty if it cannot be read.
std::string read_text(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t got = retry_on_eintr([&] { return ::pread(descriptor, text.data(), text.size(), 0); });
  return {text.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

// The first line of a lock file.
std::string holder_of(const std::string& text) {
  return text.empty() ? "an unknown process" : text.substr(0, text.find('\n'));
}

std::string read_holder(int descriptor) { return holder_of(read_text(descriptor)); }

[[noreturn]] void fail_held(const std::string& folder, const std::string& holder,
                            const char* remedy = "choose another --out") {
  throw Error(ErrorSource::input,
              fmt::format("'{}' is in use by {}: wait for it, end it, or {}", folder, holder, remedy));
}

// Distinguishes this lock from that of an earlier process with the same process ID.
std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, double wait_seconds, const Log& log, const char* remedy) {
  const std::string path = lock_file(folder);
  descriptor_ = open_lock(path);
  const std::string own = holder_text();
  const auto wait = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait_seconds));
  int error = try_lock_until(descriptor_.get(), Clock::now() + wait);
  std::string holder = is_held(error) ? read_holder(descriptor_.get()) : std::string();
  if (is_later_start_of_same_job(own, holder)) {
    log.warn(fmt::format("'{}' is still locked by an earlier start of this job, {}: taking it over", folder, holder));
    // The earlier start keeps its lock on the unlinked file; the new file keeps other jobs out.
    static_cast<void>(::unlink(path.c_str()));
    descriptor_ = open_lock(path);
    error = try_lock_until(descriptor_.get(), {});
    holder = read_holder(descriptor_.get());
  }
  if (is_held(error)) fail_held(folder, holder, remedy);
  if (error != 0) {
    log.warn(fmt::format("'{}' cannot be locked ({}): make sure that no other run writes there", folder,
                         std::generic_category().message(error)));
  }
  if (retry_on_eintr([&] { return ::ftruncate(descriptor_.get(), 0); }) != 0) fail_saving(path, "emptying", errno);
  text_ = fmt::format("{}\n{}\n", own, new_token());
  if (!write_all(descriptor_.get(), std::as_bytes(std::span(text_))).empty()) fail_saving(path, "writing", errno);
  static_cast<void>(::fsync(descriptor_.get()));  // NFS would send it later, and never if this host is lost
}

std::string OwnedFolder::loss_reason() const {
  if (folder_.empty()) return {};
  const std::string path = lock_file(folder_);
  const Descriptor lock(retry_on_eintr([&] { return ::open(path.c_str(), O_RDONLY | kLockOpenFlags); }));
  struct stat status {};
  const bool is_replaced =
      lock ? ::fstat(lock.get(), &status) == 0 && !S_ISREG(status.st_mode) : errno == ELOOP || errno == ENXIO;
  if (is_replaced) return fmt::format("'{}' is no longer this run's file: this run writes nothing more there", path);
  if (!lock && (errno == ENOENT || errno == ENOTDIR)) {
    return fmt::format(
        "'{}' is gone: the folder was removed or renamed during the run; restore it, and continue with "
        "--resume from its last checkpoint",
        path);
  }
  const std::string text = lock ? read_text(lock.get()) : "";
  if (text.empty() || text == lock_) return {};
  return fmt::format("'{}' is now in use by {}: this run writes nothing more there", folder_, holder_of(text));
}

void OwnedFolder::require() const {
  if (const std::string why = loss_reason(); !why.empty()) throw Error(ErrorSource::save, why);
}

void refuse_locked(const std::string& folder) {
  const std::string path = lock_file(folder);
  const Descriptor lock(retry_on_eintr([&] { return ::open(path.c_str(), O_RDONLY | kLockOpenFlags); }));
  struct flock whole_file = lock_of_all();
  if (!lock || retry_on_eintr([&] { return ::fcntl(lock.get(), F_OFD_GETLK, &whole_file); }) != 0) return;
  if (whole_file.l_type == F_UNLCK) return;
  const std::string holder = read_holder(lock.get());
  if (!is_later_start_of_same_job(holder_text(), holder)) fail_held(folder, holder);
}

}  // namespace tutti
