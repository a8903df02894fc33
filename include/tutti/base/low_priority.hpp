#pragma once
// For threads whose work has time: whoever computes goes first.

#include <unistd.h>

namespace tutti {

// On Linux this concerns the calling thread alone; where it fails, all compete alike.
inline void lower_priority() { static_cast<void>(::nice(5)); }

}  // namespace tutti
