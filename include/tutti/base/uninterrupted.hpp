#pragma once
// Calls of the system's that a signal may interrupt.

#include <cerrno>

namespace tutti {

// The result of a call, repeated for as long as signals interrupt it.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace tutti
