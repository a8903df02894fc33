#pragma once
// An open file of the operating system, closed once.

#include "tutti/base/unique_handle.hpp"

#include <unistd.h>

namespace tutti {

struct CloseDescriptor {
  void operator()(int descriptor) const noexcept { static_cast<void>(::close(descriptor)); }
};
using Descriptor = UniqueHandle<int, CloseDescriptor, -1>;

}  // namespace tutti
