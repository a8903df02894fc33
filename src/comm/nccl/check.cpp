#include "check.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <string_view>

namespace tutti::nccl {

void check(ncclResult_t result, std::source_location where) {
  if (result != ncclSuccess) throw Error(ErrorSource::nccl, text_of(result), where);
}

std::string text_of(ncclResult_t result) {
  const char* const last = ncclGetLastError(nullptr);
  const std::string_view detail = last == nullptr ? "" : last;
  return fmt::format("{}{}{}; NCCL_DEBUG=WARN tells more", ncclGetErrorString(result), detail.empty() ? "" : ": ",
                     detail);
}

}  // namespace tutti::nccl
