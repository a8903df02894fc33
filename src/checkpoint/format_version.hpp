#pragma once
// The version of the checkpoint format that this program writes, and the only one that it reads.

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace tutti {

constexpr std::int32_t kCheckpointFormat = 2;

// Why a checkpoint of that format is refused; empty when it is not.
inline std::string fault_of_format(std::int64_t version) {
  if (version == kCheckpointFormat) return {};
  const char* remedy = version < kCheckpointFormat
                           ? "go on with the version of this program that wrote it, or start anew in another folder"
                           : "use a newer version of this program";
  return fmt::format("has format {}, this program reads {}: {}", version, kCheckpointFormat, remedy);
}

}  // namespace tutti
