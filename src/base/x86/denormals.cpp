#include "tutti/base/denormals.hpp"

#include <xmmintrin.h>

namespace tutti {
namespace {

constexpr std::uint64_t kFlushToZero = 0x8000;
constexpr std::uint64_t kDenormalsAreZero = 0x0040;
constexpr std::uint64_t kBoth = kFlushToZero | kDenormalsAreZero;
constexpr std::uint64_t kModes[] = {kFlushToZero, kDenormalsAreZero, kBoth};

}  // namespace

std::uint64_t denormal_mode() { return _mm_getcsr() & kBoth; }
void set_denormal_mode(std::uint64_t mode) { _mm_setcsr(static_cast<unsigned>((_mm_getcsr() & ~kBoth) | mode)); }
std::span<const std::uint64_t> flushing_modes() { return kModes; }

}  // namespace tutti
