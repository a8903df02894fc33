#pragma once
// GPUs that are not present, for which cuDNN can make plans from their properties.

#include "backend/cuda/cudnn_graph.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::cuda {

// Limits of a block and a multiprocessor are those of the compute capability (CUDA Programming Guide, "Technical
// Specifications per Compute Capability"). Multiprocessors, clocks and caches are those of NVIDIA's data sheets and
// white papers, memories what PyTorch prints as `total_memory`. The caches of the H200 and B200, and all memory clocks,
// are what cudaGetDeviceProperties returned to others, who published it.
struct GpuProperties {
  std::string_view name;
  int capability;  // 90 is 9.0
  int multiprocessors;
  int block_shared_bytes;     // that a block can have
  int reserved_shared_bytes;  // of each block
  int blocks;                 // of a multiprocessor, as are the threads
  int threads;
  std::int64_t memory_mib;
  int clock_mhz;
  int memory_clock_mhz;
  int cache_kib;
};

inline constexpr std::array kGpus{
    GpuProperties{"NVIDIA A100-SXM4-80GB", 80, 108, 166912, 1024, 32, 2048, 81050, 1410, 1593, 40960},
    GpuProperties{"NVIDIA H100 80GB HBM3", 90, 132, 232448, 1024, 32, 2048, 81082, 1980, 2619, 51200},
    GpuProperties{"NVIDIA H200", 90, 132, 232448, 1024, 32, 2048, 143771, 1980, 3201, 61440},
    GpuProperties{"NVIDIA B200", 100, 148, 232448, 1024, 32, 2048, 182642, 1965, 3996, 129536},
    GpuProperties{"NVIDIA L40S", 89, 142, 101376, 1024, 24, 1536, 45589, 2520, 9001, 98304}};
inline constexpr const GpuProperties& kH200 = kGpus[2];
// A GPU that the program refuses.
inline constexpr GpuProperties kT4{"Tesla T4", 75, 40, 65536, 0, 16, 1024, 15110, 1590, 5001, 4096};

class AbsentGpu final : public CudnnTarget {
 public:
  explicit AbsentGpu(const GpuProperties& gpu) {
    const std::string text = fmt::format(
        R"({{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
        R"("multiProcessorCount":{},"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},)"
        R"("reservedSharedMemoryPerBlock":{},"maxRegistersPerSM":65536,"maxCtasPerSM":{},"maxThreadsPerBlock":1024,)"
        R"("maxThreadsPerSM":{},"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":{},)"
        R"("smClockRateKHz":{},"memClockRateKHz":{},"l2CacheSize":{},"cudaDeviceId":0,"deviceVer":{},)"
        R"("driverVer":13000,"deviceName":"{}"}})",
        gpu.multiprocessors, gpu.block_shared_bytes, gpu.reserved_shared_bytes, gpu.blocks, gpu.threads,
        gpu.memory_mib << 20, gpu.clock_mhz * 1000, gpu.memory_clock_mhz * 1000, gpu.cache_kib * 1024,
        gpu.capability * 10, gpu.name);
    properties_.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::vector<char>(text.begin(), text.end()));
    properties_.finalize();
  }

  void apply_to(CudnnDescriptor& descriptor) const override {
    if (descriptor.type() == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
      descriptor.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties_);
    } else if (descriptor.type() == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
      descriptor.set(CUDNN_ATTR_ENGINE_DEVICEPROP, properties_);
    } else if (descriptor.type() == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
      descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties_);
    }
  }

 private:
  CudnnDescriptor properties_{CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR};
};

}  // namespace tutti::cuda
