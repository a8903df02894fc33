#pragma once
// What libtutti_cuda.so offers: functions behind one exported symbol, so that the program starts on machines
// without CUDA and opens the library only when a GPU is asked for. NCCL has its own such table
// (comm/nccl_library.hpp), in the same library and of the same version.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/precision.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tutti {

struct CudaDevice {
  std::string name;
  std::string uuid;  // as nvidia-smi prints it: "GPU-" and 32 hexadecimal digits in five groups
  std::int64_t memory_bytes = 0;
  int capability_major = 0;
  int capability_minor = 0;
};

struct CudaInventory {
  std::vector<CudaDevice> devices;
  std::string why_none;         // empty when there are devices
  std::string driver_version;   // the newest CUDA that the driver serves: "13.0", or "no driver"
  std::string runtime_version;  // "13.0"
  std::string cudnn_version;    // "9.19.0"
};

struct CudaOptions {
  int device = 0;
  Precision precision = Precision::fp32;
  // Measure which of cuDNN's ways of computing each convolution is the fastest; else take its first proposal.
  bool search_plans = true;
  // Let repeated work be noted once and enqueued as one graph.
  bool record = true;
};

// Raised with every change of the tables: program and library must come from the same build.
inline constexpr int kCudaInterfaceVersion = 4;

struct CudaLibrary {
  int interface_version = kCudaInterfaceVersion;  // first in every version
  // Works without a driver and without a device.
  CudaInventory (*query)() = nullptr;
  std::unique_ptr<Backend> (*make_backend)(const CudaOptions& options) = nullptr;
  // Of a device's memory, what nobody holds. Makes the device ready for use.
  std::int64_t (*free_bytes)(int device) = nullptr;
};

extern "C" const CudaLibrary& tutti_cuda_library();

}  // namespace tutti
