#include "tutti/comm/nccl_library.hpp"

#include "communicator.hpp"

namespace tutti {

extern "C" const NcclLibrary& tutti_nccl_library() {
  static const NcclLibrary library{.version = nccl::version, .make_communicator = nccl::make_communicator};
  return library;
}

}  // namespace tutti
