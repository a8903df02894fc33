#pragma once
// On which processor each rank computes, and what reduces their gradients, by --device, --comm and the options that go
// with them. libtutti_cuda.so is opened here when a GPU is asked for.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/cuda_library.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/comm/nccl_library.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/watch/stall_watch.hpp"

#include "device_choice.hpp"
#include "run_config.hpp"

#include <functional>
#include <memory>
#include <string>

namespace tutti {

struct CudaLibraries {
  const CudaLibrary& cuda;
  const NcclLibrary& nccl;
};

// The paths of libtutti.so and of libtutti_cuda.so beside it.
std::string library_path();
std::string cuda_library_path();

// Once opened, the library stays until the process ends, as CUDA requires. Throws a usage error that names the library,
// the reason and the remedy if it is missing, does not find a library that it needs, or is of another build.
CudaLibraries load_cuda_libraries(const std::string& path = cuda_library_path());

struct ChosenProcessor {
  std::unique_ptr<Backend> backend;
  int device = -1;             // the GPU's number; below 0: the CPU
  bool all_on_gpus = false;    // every rank of the world
  bool shares_device = false;  // with other ranks, by --share-device
  std::string note{};          // why --device auto did not choose GPUs

  bool is_gpu() const { return device >= 0; }
};

// A library that is missing or cannot be opened counts as having no GPU.
CudaInventory look_for_gpus(Device device);

// Logs in one line why --device auto did not choose GPUs. Throws alike on all ranks. Collective.
ChosenProcessor choose_processor(World& world, const RunConfig& config, const Log& log);

// `spare_core`: a core that no thread of this host computes on. Collective.
std::unique_ptr<Communicator> choose_communicator(World& world, const RunConfig& config,
                                                  const ChosenProcessor& processor, bool spare_core);

// For work with all-reduces: a rank that destroyed its communicator early could cut off the last all-reduce of others.
// So no rank leaves alone, neither with the work done nor with an error that all share. Collective.
void end_together(World& world, const std::function<void()>& work);

// While one of these lives, a stall watch that ends the process first aborts the communicator's collectives, so that no
// device is left spinning.
class AbandonAtEnd {
 public:
  // Both are borrowed; without a watch, does nothing.
  AbandonAtEnd(StallWatch* watch, Communicator& communicator) : watch_(watch) {
    if (watch_ != nullptr) watch_->before_end([&communicator] { communicator.abandon(); });
  }
  // Waits for the end of the process if that has begun.
  ~AbandonAtEnd() {
    if (watch_ != nullptr) watch_->before_end({});
  }
  AbandonAtEnd(const AbandonAtEnd&) = delete;
  AbandonAtEnd& operator=(const AbandonAtEnd&) = delete;

 private:
  StallWatch* watch_;
};

}  // namespace tutti
