#pragma once
// The one way to look at what NCCL returns.

#include <nccl.h>

#include <source_location>

namespace tutti::nccl {

void check(ncclResult_t result, std::source_location where = std::source_location::current());

}  // namespace tutti::nccl
