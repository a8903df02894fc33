#include "cuda_loader.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/base/version.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>

namespace tutti {
namespace {

constexpr std::string_view kFileName = "libtutti_cuda.so";

// The library itself stays (RTLD_NODELETE); closing gives back the claim on it.
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

}  // namespace

std::string library_path() {
  Dl_info place{};
  const bool known = ::dladdr(reinterpret_cast<const void*>(&version), &place) != 0 && place.dli_fname != nullptr;
  return known ? place.dli_fname : "";
}

std::string cuda_library_path() { return (std::filesystem::path(library_path()).parent_path() / kFileName).string(); }

CudaLibraries load_cuda_libraries(const std::string& path) {
  const LibraryHandle library(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
  if (!library) {
    throw Error(
        ErrorSource::usage,
        fmt::format("cannot open {}, which GPUs need: {}; build Tutti with -DTUTTI_CUDA=ON and keep CUDA, cuDNN "
                    "and NCCL where the loader finds them (LD_LIBRARY_PATH), or choose --device cpu",
                    kFileName, last_error()));
  }
  const CudaLibrary& cuda = entry<decltype(&tutti_cuda_library)>(library, "tutti_cuda_library", path)();
  if (cuda.interface_version != kCudaInterfaceVersion) {
    throw Error(
        ErrorSource::usage,
        fmt::format("'{}' is of another build: its interface version is {}, this program's {}; build or install "
                    "both together, or choose --device cpu",
                    path, cuda.interface_version, kCudaInterfaceVersion));
  }
  return {.cuda = cuda, .nccl = entry<decltype(&tutti_nccl_library)>(library, "tutti_nccl_library", path)()};
}

}  // namespace tutti
