#pragma once
// Chooses the processor of each rank and the communicator, from --device, --comm and related options. Opens
// libtutti_cuda.so if a GPU is requested.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/cuda_library.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/comm/nccl_library.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/watch/stall_watch.hpp"

#include "machine.hpp"
#include "run_config.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace tutti {

struct CudaLibraries {
  const CudaLibrary& cuda;
  const NcclLibrary& nccl;
};

// The paths of libtutti.so and of libtutti_cuda.so next to it.
std::string library_path();
std::string cuda_library_path();

// Once opened, the library stays loaded until the process ends, as CUDA requires. Throws a usage error that names the
// library, the reason and the remedy if it is missing, does not find a library that it needs, or is of another build.
CudaLibraries load_cuda_libraries(const std::string& path = cuda_library_path());

// The GPUs of this host and process.
struct GpuFacts {
  Device device = Device::automatic;  // as requested
  bool has_card = false;
  bool has_driver = false;
  std::size_t announced = 0;  // by CUDA_VISIBLE_DEVICES
  CudaInventory inventory{};
};

// The number of devices in a value of CUDA_VISIBLE_DEVICES, which launchers set. CUDA ignores the rest after the first
// entry that names none, such as -1.
std::size_t devices_named_in(const std::string& visible_devices);
// Whether CUDA shows fewer GPUs than the launcher announced, or none since it failed on a host with a card or driver.
bool misses_gpus(const GpuFacts& facts);
// If the library is missing or cannot be opened, CUDA has no GPUs. With Device::automatic it is not opened on a machine
// without any sign of a GPU.
GpuFacts gpu_facts(Device device, const Machine& machine = Machine());

struct ChosenProcessor {
  std::unique_ptr<Backend> backend;
  int device = -1;                        // number of the GPU; negative: the CPU
  CudaDevice gpu{};                       // if it is not the CPU
  bool all_on_gpus = false;               // every rank of the world
  Precision precision = Precision::fp32;  // of all ranks, with --precision auto resolved
  std::string note{};                     // why --device auto fell back to CPUs
  std::string warning{};                  // as in DeviceChoice
  std::function<void(const std::string&)> warn{};

  bool is_gpu() const { return device >= 0; }
};

// Logs in one line why --device auto fell back to CPUs, and warns of GPUs that NCCL cannot connect well. Throws the
// same error on all ranks. Collective.
ChosenProcessor choose_processor(World& world, const GpuFacts& facts, const ProcessorOptions& options, const Log& log);

// `spare_core`: a core that no thread of this host computes on. Collective.
std::unique_ptr<Communicator> choose_communicator(World& world, const RunConfig& config,
                                                  const ChosenProcessor& processor, bool spare_core);

// Runs `work` and then a barrier, also if all ranks throw the same error: a rank that destroyed its communicator early
// could cut off the last all-reduce of others. Collective.
void run_then_barrier(World& world, const std::function<void()>& work);

// While one of these exists, a stall watch that ends the process first aborts the communicator's collectives, so that
// no device keeps spinning.
class AbortCollectivesOnExit {
 public:
  // Both are borrowed. Without a watch this does nothing.
  AbortCollectivesOnExit(StallWatch* watch, Communicator& communicator) : watch_(watch) {
    if (watch_ != nullptr) watch_->set_process_end_callback([&communicator] { communicator.abort(); });
  }
  // If the watch is already ending the process, waits for that.
  ~AbortCollectivesOnExit() {
    if (watch_ != nullptr) watch_->set_process_end_callback({});
  }
  AbortCollectivesOnExit(const AbortCollectivesOnExit&) = delete;
  AbortCollectivesOnExit& operator=(const AbortCollectivesOnExit&) = delete;

 private:
  StallWatch* watch_;
};

}  // namespace tutti
