#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <string_view>

namespace tutti {
namespace {

std::string_view library_name(ErrorSource source) {
  switch (source) {
    case ErrorSource::mpi:
      return "MPI";
    case ErrorSource::hdf5:
      return "HDF5";
    case ErrorSource::onednn:
      return "oneDNN";
    case ErrorSource::cuda:
      return "CUDA";
    case ErrorSource::cudnn:
      return "cuDNN";
    case ErrorSource::nccl:
      return "NCCL";
    case ErrorSource::internal:
      return "internal error";
    default:
      return "";
  }
}

std::string_view path_in_project(std::string_view path) {
  for (const std::string_view root : {"/src/", "/include/", "/tests/"}) {
    if (const auto at = path.rfind(root); at != std::string_view::npos) return path.substr(at + 1);
  }
  return path;
}

}  // namespace

Error::Error(ErrorSource source, const std::string& message, std::source_location where)
    : std::runtime_error(message), source_(source), where_(where) {}

ExitStatus Error::exit_status() const noexcept {
  switch (source_) {
    case ErrorSource::usage:
      return ExitStatus::usage;
    case ErrorSource::input:
    case ErrorSource::gpu_memory:
      return ExitStatus::bad_input;
    case ErrorSource::checkpoint:
      return ExitStatus::no_checkpoint;
    case ErrorSource::save:
      return ExitStatus::cannot_save;
    case ErrorSource::io:
      return ExitStatus::input_io;
    case ErrorSource::hang:
      return ExitStatus::hang;
    case ErrorSource::diverged:
      return ExitStatus::diverged;
    case ErrorSource::not_finite:
      return ExitStatus::not_finite;
    default:
      return ExitStatus::internal;
  }
}

Error Error::on_all_ranks() const {
  Error marked = *this;
  marked.scope_ = ErrorScope::all_ranks;
  return marked;
}

std::string Error::describe() const {
  const std::string_view library = library_name(source_);
  if (library.empty()) return what();
  return fmt::format("{}: {} ({}:{})", library, what(), path_in_project(where_.file_name()), where_.line());
}

}  // namespace tutti
