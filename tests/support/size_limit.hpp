#pragma once
// Limits the size of the files and of the shared memory that this process writes.

#include <sys/resource.h>

#include <csignal>

namespace tutti {

// The destructor restores the limit.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) : before_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;
  ~SizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, before_handler_);
  }

 private:
  sighandler_t before_handler_;
  rlimit before_{};
};

}  // namespace tutti
