#pragma once
// Sole owner of a plain handle of a C library or of a file descriptor: moves, never copies, releases once.

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tutti {

// Release is a callable default-constructible type; Empty is the value that owns nothing.
template <class Handle, class Release, Handle Empty = Handle{}>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) noexcept : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, Empty)) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, Empty);
    }
    return *this;
  }
  ~UniqueHandle() { reset(); }

  Handle get() const noexcept { return handle_; }
  Handle release() noexcept { return std::exchange(handle_, Empty); }
  void reset() noexcept {
    if (handle_ != Empty) Release{}(std::exchange(handle_, Empty));
  }
  explicit operator bool() const noexcept { return handle_ != Empty; }

 private:
  Handle handle_ = Empty;
};

struct CloseDescriptor {
  void operator()(int descriptor) const noexcept { static_cast<void>(::close(descriptor)); }
};
using Descriptor = UniqueHandle<int, CloseDescriptor, -1>;

// The result of a system call, repeated for as long as signals interrupt it.
template <class Call>
auto retry_on_eintr(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace tutti
