#include "shared_device.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace tutti::nccl {
namespace {

struct Setting {
  const char* name;
  const char* value;
};

// Sockets on loopback with host memory alone; few blocks, since the ranks take turns on the device; the ring with the
// protocol that needs no rank to run while another polls.
constexpr std::array kSettings{
    Setting{"NCCL_NET", "Socket"},
    Setting{"NCCL_NET_PLUGIN", "none"},
    Setting{"NCCL_IB_DISABLE", "1"},
    Setting{"NCCL_SOCKET_IFNAME", "lo"},
    Setting{"NCCL_SOCKET_FAMILY", "AF_INET"},
    Setting{"NCCL_ALGO", "Ring"},
    Setting{"NCCL_PROTO", "Simple"},
    Setting{"NCCL_MAX_CTAS", "2"},
    Setting{"NCCL_MNNVL_ENABLE", "0"},
    Setting{"NCCL_NVLS_ENABLE", "0"},
    Setting{"NCCL_CUMEM_HOST_ENABLE", "0"},
    Setting{"NCCL_RAS_ENABLE", "0"},
    Setting{"NCCL_P2P_DISABLE", "1"},
    Setting{"NCCL_SHM_DISABLE", "1"},
};

void set(const char* name, const std::string& value, bool replace) {
  if (::setenv(name, value.c_str(), replace ? 1 : 0) != 0) {
    throw Error(ErrorSource::internal, fmt::format("cannot set {} in the environment", name));
  }
}

}  // namespace

void prepare_shared_device(const World& world) {
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking != nullptr && std::string_view(blocking) == "1") {
    throw Error(ErrorSource::usage,
                "with CUDA_LAUNCH_BLOCKING=1 ranks that share a device would wait for each other for ever: unset it");
  }
  // The process too, since a rank of a sub-world has another number there.
  set("NCCL_HOSTID", fmt::format("{}-{}-{}", world.host(), ::getpid(), world.rank()), true);
  for (const Setting& setting : kSettings) set(setting.name, setting.value, false);
}

}  // namespace tutti::nccl
