#pragma once
// A limit of the deflate format, in which gzip and PNG files are compressed.

#include <cstdint>

namespace tutti {

// A byte of a file expands to at most this many.
inline constexpr std::int64_t kMaxDeflateRatio = 1032;

}  // namespace tutti
