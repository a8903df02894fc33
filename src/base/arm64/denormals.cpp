#include "tutti/base/denormals.hpp"

namespace tutti {
namespace {

// FPCR.FZ, which holds for operands and results. A result counts as denormal if it is so before rounding: one that
// would be rounded up to the smallest normal number becomes 0, and FPSR.UFC is set.
constexpr std::uint64_t kModes[] = {std::uint64_t{1} << 24};

}  // namespace

std::uint64_t denormal_mode() { return __builtin_aarch64_get_fpcr64() & kModes[0]; }
void set_denormal_mode(std::uint64_t mode) {
  __builtin_aarch64_set_fpcr64((__builtin_aarch64_get_fpcr64() & ~kModes[0]) | mode);
}
std::span<const std::uint64_t> flushing_modes() { return kModes; }

}  // namespace tutti
