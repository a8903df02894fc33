#pragma once
// A process in which files, and shared memory, end at so many bytes.

#include <sys/resource.h>

#include <csignal>

namespace tutti {

// As long as it lives.
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
