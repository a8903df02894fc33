#include "check.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti::nccl {

void check(ncclResult_t result, std::source_location where) {
  if (result == ncclSuccess) return;
  throw Error(ErrorSource::nccl,
              fmt::format("{}: {}; NCCL_DEBUG=WARN tells more", ncclGetErrorString(result), ncclGetLastError(nullptr)),
              where);
}

}  // namespace tutti::nccl
