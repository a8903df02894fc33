#include "processors.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/unique_handle.hpp"

#include "device_choice.hpp"
#include "preflight/host.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>

namespace tutti {
namespace {

constexpr std::string_view kFileName = "libtutti_cuda.so";

// The library stays loaded (RTLD_NODELETE); closing releases the handle.
struct CloseLibrary {
  void operator()(void* library) const noexcept { static_cast<void>(::dlclose(library)); }
};
using LibraryHandle = UniqueHandle<void*, CloseLibrary>;

std::string last_error() {
  const char* text = ::dlerror();
  return text == nullptr ? "no reason given" : text;
}

template <class Entry>
Entry entry(const LibraryHandle& library, const char* name, const std::string& path) {
  void* const symbol = ::dlsym(library.get(), name);
  if (symbol == nullptr) {
    throw Error(ErrorSource::usage,
                fmt::format("'{}' is not Tutti's CUDA library: {}; build or install Tutti again", path, last_error()));
  }
  return reinterpret_cast<Entry>(symbol);
}

std::unique_ptr<Backend> make_cpu(const RunConfig& config) {
  const Precision precision = config.precision;
  if (precision == Precision::tf32) {
    throw Error(ErrorSource::usage,
                "--precision tf32 needs GPUs, and this run is on CPUs: use fp32, or bf16 for speed");
  }
  return make_cpu_backend(precision, config.tiled_convolutions ? Convolutions::tiled : Convolutions::direct);
}

std::unique_ptr<Backend> make_gpu(const RunConfig& config, int device) {
  return load_cuda_libraries().cuda.make_backend({.device = device,
                                                  .precision = config.precision,
                                                  .search_plans = config.search_plans,
                                                  .use_graphs = config.record_steps});
}

std::unique_ptr<Communicator> make_nccl(World& world, const RunConfig& config, const ChosenProcessor& processor) {
  if (!processor.all_on_gpus) {
    throw Error(ErrorSource::usage,
                "--comm nccl needs a GPU on every rank, and some ranks are on CPUs: use --comm mpi");
  }
  // The deadline is later than that of the stall watch, so that the watch can report the late rank first.
  const double deadline = (StallWatch::kSlowFactor + 1) * config.stall_timeout;
  return load_cuda_libraries().nccl.make_communicator(
      world, {.device = processor.device, .deadline_seconds = deadline, .share_device = processor.shares_device});
}

std::unique_ptr<Communicator> make_ring(World& world, const ChosenProcessor& processor, bool spare_core) {
  if (!started_by_launcher()) {
    throw Error(ErrorSource::usage, fmt::format("--comm mpi needs a launcher: mpirun -np 4 {}", program_call()));
  }
  // Staging buffers are in pinned memory, which ranks cannot share. All ranks must use the same algorithm.
  const bool staged = !world.all_true(!processor.is_gpu());
  const AllReduceAlgorithm algorithm = staged ? AllReduceAlgorithm::ring : AllReduceAlgorithm::automatic;
  auto ring = make_mpi_communicator(world, {.helper_thread = spare_core, .algorithm = algorithm});
  return staged ? make_staged_communicator(*processor.backend, std::move(ring)) : std::move(ring);
}

// On a machine without an NVIDIA driver or card, no note about missing GPUs is needed.
bool may_want_gpus() {
  const Machine machine;
  return machine.has_nvidia_driver() || machine.has_nvidia_card();
}

}  // namespace

std::string library_path() {
  Dl_info info{};
  const bool known = ::dladdr(reinterpret_cast<const void*>(&version), &info) != 0 && info.dli_fname != nullptr;
  return known ? info.dli_fname : "";
}

std::string cuda_library_path() { return (std::filesystem::path(library_path()).parent_path() / kFileName).string(); }

CudaLibraries load_cuda_libraries(const std::string& path) {
  const LibraryHandle library(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
  if (!library) {
    throw Error(
        ErrorSource::usage,
        fmt::format("cannot open {}, required for GPUs: {}; build Tutti with -DTUTTI_CUDA=ON and keep CUDA, cuDNN "
                    "and NCCL where the loader finds them (LD_LIBRARY_PATH), or choose --device cpu",
                    kFileName, last_error()));
  }
  const CudaLibrary& cuda = entry<decltype(&tutti_cuda_library)>(library, "tutti_cuda_library", path)();
  if (cuda.interface_version != kCudaInterfaceVersion) {
    throw Error(
        ErrorSource::usage,
        fmt::format("'{}' belongs to another build: its interface version is {}, this program's {}; build or install "
                    "both together, or choose --device cpu",
                    path, cuda.interface_version, kCudaInterfaceVersion));
  }
  return {.cuda = cuda, .nccl = entry<decltype(&tutti_nccl_library)>(library, "tutti_nccl_library", path)()};
}

CudaInventory query_gpus(Device device) {
  CudaInventory none;
  if (device == Device::cpu) return none;
  try {
    if (std::filesystem::exists(cuda_library_path())) return load_cuda_libraries().cuda.query();
    none.unavailable_reason = "this build has no libtutti_cuda.so (build it with -DTUTTI_CUDA=ON)";
  } catch (const Error& error) {
    none.unavailable_reason = error.what();
  }
  return none;
}

ChosenProcessor choose_processor(World& world, const RunConfig& config, const Log& log) {
  const DeviceChoice choice =
      choose_device(world, query_gpus(config.device),
                    {.device = config.device, .share = config.share_device, .allow_mixed = config.comm == Comm::mpi});
  if (!choice.note.empty() && may_want_gpus()) log.info(choice.note);
  ChosenProcessor chosen{.backend = nullptr,
                         .device = choice.device.value_or(-1),
                         .shares_device = config.share_device,
                         .note = choice.note};
  run_or_throw_on_all(world,
                      [&] { chosen.backend = chosen.is_gpu() ? make_gpu(config, chosen.device) : make_cpu(config); });
  chosen.all_on_gpus = world.all_true(chosen.is_gpu());
  return chosen;
}

std::unique_ptr<Communicator> choose_communicator(World& world, const RunConfig& config,
                                                  const ChosenProcessor& processor, bool spare_core) {
  const bool alone = world.size() == 1;
  if (config.comm == Comm::solo && !alone) {
    throw Error(ErrorSource::usage, fmt::format("--comm solo is for one rank, but there are {}", world.size()));
  }
  if (config.comm == Comm::solo || (config.comm == Comm::automatic && alone)) {
    return make_solo_communicator(processor.is_gpu() ? processor.backend.get() : nullptr);
  }
  const bool by_nccl = config.comm == Comm::nccl || (config.comm == Comm::automatic && processor.all_on_gpus);
  return by_nccl ? make_nccl(world, config, processor) : make_ring(world, processor, spare_core);
}

void run_then_barrier(World& world, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.scope() == ErrorScope::all_ranks) world.barrier();
    throw;
  }
  world.barrier();
}

}  // namespace tutti
