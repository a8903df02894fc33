#include "processors.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/unique_handle.hpp"

#include "device_choice.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <sstream>
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

// Without it CUDA finds no GPU, also on machines whose GPUs are not on a PCI bus, such as Jetson and WSL.
bool finds_cuda_driver() { return LibraryHandle(::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)).get() != nullptr; }

std::unique_ptr<Backend> make_gpu(CudaOptions options, const ChosenProcessor& chosen) {
  options.device = chosen.device;
  options.precision = chosen.precision;
  options.warn = chosen.warn;
  return load_cuda_libraries().cuda.make_backend(options);
}

std::unique_ptr<Communicator> make_nccl(World& world, const RunConfig& config, const ChosenProcessor& processor) {
  if (!processor.all_on_gpus) {
    throw Error(ErrorSource::usage,
                "--comm nccl needs a GPU on every rank, and some ranks are on CPUs: use --comm mpi");
  }
  // The deadline is later than that of the stall watch, so that the watch can report the late rank first.
  const double deadline = (StallWatch::kSlowFactor + 1) * config.watch.timeout_seconds;
  return load_cuda_libraries().nccl.make_communicator(world, {.device = processor.device,
                                                              .deadline_seconds = deadline,
                                                              .share_device = config.processor.share_device,
                                                              .warn = processor.warn});
}

std::unique_ptr<Communicator> make_over_mpi(World& world, const ChosenProcessor& processor, bool spare_core) {
  if (!started_by_launcher()) {
    throw Error(ErrorSource::usage, fmt::format("--comm mpi needs a launcher: mpirun -np 4 {}", program_call()));
  }
  // Staging buffers are in pinned memory, which ranks cannot share. All ranks must use the same algorithm.
  const bool staged = !world.all_true(!processor.is_gpu());
  const AllReduceAlgorithm algorithm = staged ? AllReduceAlgorithm::ring : AllReduceAlgorithm::automatic;
  auto ring = make_mpi_communicator(world, {.helper_thread = spare_core, .algorithm = algorithm});
  return staged ? make_staged_communicator(*processor.backend, std::move(ring)) : std::move(ring);
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

std::size_t devices_named_in(const std::string& visible_devices) {
  std::istringstream entries(visible_devices);
  std::size_t named = 0;
  for (std::string entry; std::getline(entries >> std::ws, entry, ',');) {
    const bool is_number = std::isdigit(static_cast<unsigned char>(entry[0])) != 0;
    if (!is_number && !entry.starts_with("GPU-") && !entry.starts_with("MIG-")) break;
    ++named;
  }
  return named;
}

bool misses_gpus(const GpuFacts& facts) {
  return facts.inventory.devices.size() < facts.announced ||
         (facts.inventory.failed && (facts.has_card || facts.has_driver));
}

GpuFacts gpu_facts(Device device, const Machine& machine) {
  GpuFacts facts{.device = device, .has_card = machine.has_nvidia_card(), .has_driver = machine.has_nvidia_driver()};
  if (device == Device::cpu) return facts;
  CudaInventory& inventory = facts.inventory;
  if (!std::filesystem::exists(cuda_library_path())) {
    inventory.unavailable_reason = "this build has no libtutti_cuda.so (build it with -DTUTTI_CUDA=ON)";
    return facts;
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  facts.announced = visible == nullptr ? 0 : devices_named_in(visible);
  const bool expects_gpu = facts.has_card || facts.has_driver || facts.announced > 0;
  // Opening our library maps gigabytes of CUDA's, which a limit of memory (ulimit -v) may forbid.
  if (device == Device::automatic && !expects_gpu && !finds_cuda_driver()) {
    inventory.unavailable_reason = "no driver";
    return facts;
  }
  try {
    inventory = load_cuda_libraries().cuda.query();
  } catch (const Error& error) {
    inventory.failed = error.source() == ErrorSource::cuda;
    inventory.unavailable_reason = error.what();
  }
  return facts;
}

ChosenProcessor choose_processor(World& world, const GpuFacts& facts, const ProcessorOptions& options, const Log& log) {
  const DeviceRequest request{
      .device = options.device, .share = options.share_device, .allow_mixed = options.comm == Comm::mpi};
  const DeviceChoice choice = choose_device(world, facts.inventory, request, misses_gpus(facts));
  // On a machine without an NVIDIA driver or card, no note about missing GPUs is needed.
  if (!choice.note.empty() && (facts.has_driver || facts.has_card)) log.info(choice.note);
  if (!choice.warning.empty() && world.rank() == 0) log.warn(choice.warning);
  ChosenProcessor chosen{.backend = nullptr,
                         .device = choice.device.value_or(-1),
                         .note = choice.note,
                         .warning = choice.warning,
                         .warn = [log](const std::string& text) { log.warn(text); }};
  if (chosen.is_gpu()) chosen.gpu = facts.inventory.devices.at(static_cast<std::size_t>(chosen.device));
  chosen.all_on_gpus = world.all_true(chosen.is_gpu());
  chosen.precision = options.precision.value_or(chosen.all_on_gpus ? Precision::tf32 : Precision::fp32);
  run_or_throw_on_all(world, [&] {
    chosen.backend = chosen.is_gpu() ? make_gpu(options.gpu, chosen) : make_cpu_backend(chosen.precision);
  });
  return chosen;
}

std::unique_ptr<Communicator> choose_communicator(World& world, const RunConfig& config,
                                                  const ChosenProcessor& processor, bool spare_core) {
  const bool alone = world.size() == 1;
  if (config.processor.comm == Comm::solo && !alone) {
    throw Error(ErrorSource::usage, fmt::format("--comm solo is for one rank, but there are {}", world.size()));
  }
  if (config.processor.comm == Comm::solo || (config.processor.comm == Comm::automatic && alone)) {
    return make_solo_communicator(processor.is_gpu() ? processor.backend.get() : nullptr);
  }
  const bool by_nccl =
      config.processor.comm == Comm::nccl || (config.processor.comm == Comm::automatic && processor.all_on_gpus);
  return by_nccl ? make_nccl(world, config, processor) : make_over_mpi(world, processor, spare_core);
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
