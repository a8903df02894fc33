#pragma once
// The one way to look at what NCCL returns.

#include <nccl.h>

#include <source_location>
#include <string>

namespace tutti::nccl {

void check(ncclResult_t result, std::source_location where = std::source_location::current());

// What a failure means, in NCCL's words, and how to learn more.
std::string text_of(ncclResult_t result);

}  // namespace tutti::nccl
