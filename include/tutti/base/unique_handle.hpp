#pragma once
// Sole owner of a plain handle of a C library: moves, never copies, releases once.

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

}  // namespace tutti
