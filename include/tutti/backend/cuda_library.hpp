#pragma once
// The interface of libtutti_cuda.so: a function table behind one exported symbol, so that the program starts on
// machines without CUDA and loads the library only when a GPU is requested. The library has a second table, for NCCL
// (comm/nccl_library.hpp), with the same version.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/precision.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tutti {

struct CudaDevice {
  std::string name;
  std::string uuid;          // as nvidia-smi prints it: "GPU-" and 32 hexadecimal digits in five groups
  std::string pci_bus_id{};  // "0000:17:00.0", as in /sys/bus/pci/devices; MIG instances of one GPU share it
  std::int64_t memory_bytes = 0;
};

struct CudaInventory {
  std::vector<CudaDevice> devices;  // up to the first that is too old
  std::string unavailable_reason;   // empty when there are devices
  bool failed = false;              // there is a driver, and CUDA could not start; not just that there is no device
  std::string driver_version;       // the newest CUDA that the driver supports: "13.0", or "no driver"
  std::string runtime_version;      // "13.0"
  std::string cudnn_version;        // "9.19.0"
};

struct CudaOptions {
  int device = 0;
  Precision precision = Precision::fp32;
  // Time cuDNN's engines for each convolution and use the fastest. Otherwise use the first one that cuDNN proposes.
  bool search_plans = true;
  // Capture repeated work as CUDA graphs.
  bool use_graphs = true;
  // Called, in any thread, with a line for the user.
  std::function<void(const std::string&)> warn{};
};

// Incremented with every change of the tables: program and library must come from the same build.
inline constexpr int kCudaInterfaceVersion = 9;

struct CudaLibrary {
  int interface_version = kCudaInterfaceVersion;  // first in every version
  // Works without a driver and without a device.
  CudaInventory (*query)() = nullptr;
  std::unique_ptr<Backend> (*make_backend)(const CudaOptions& options) = nullptr;
  // The free memory of a device. Creates the device's context.
  std::int64_t (*free_bytes)(int device) = nullptr;
  // What timing the engines took, in words, for a backend that this library made; empty if there was no timing.
  std::string (*search_summary)(const Backend& backend) = nullptr;
};

extern "C" const CudaLibrary& tutti_cuda_library();

}  // namespace tutti
