#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace tutti {
namespace {

struct SourceFacts {
  ExitStatus status;
  std::string_view library{};  // named by describe(); empty: the error is the user's
};
// One entry for each ErrorSource, in their order.
constexpr std::array<SourceFacts, 15> kSources{{{ExitStatus::usage},
                                                {ExitStatus::bad_input},
                                                {ExitStatus::no_checkpoint},
                                                {ExitStatus::cannot_save},
                                                {ExitStatus::input_io},
                                                {ExitStatus::hang},
                                                {ExitStatus::diverged},
                                                {ExitStatus::not_finite},
                                                {ExitStatus::bad_input},  // gpu_memory
                                                {ExitStatus::internal, "internal error"},
                                                {ExitStatus::internal, "MPI"},
                                                {ExitStatus::internal, "HDF5"},
                                                {ExitStatus::internal, "CUDA"},
                                                {ExitStatus::internal, "cuDNN"},
                                                {ExitStatus::internal, "NCCL"}}};
const SourceFacts& facts_of(ErrorSource source) { return kSources[static_cast<std::size_t>(source)]; }

std::string_view path_in_project(std::string_view path) {
  for (const std::string_view root : {"/src/", "/include/", "/tests/"}) {
    if (const auto at = path.rfind(root); at != std::string_view::npos) return path.substr(at + 1);
  }
  return path;
}

}  // namespace

Error::Error(ErrorSource source, const std::string& message, std::source_location where)
    : std::runtime_error(message), source_(source), where_(where) {}

ExitStatus Error::exit_status() const noexcept { return facts_of(source_).status; }

Error Error::on_all_ranks() const {
  Error marked = *this;
  marked.scope_ = ErrorScope::all_ranks;
  return marked;
}

std::string Error::describe() const {
  const std::string_view library = facts_of(source_).library;
  if (library.empty()) return what();
  return fmt::format("{}: {} ({}:{})", library, what(), path_in_project(where_.file_name()), where_.line());
}

}  // namespace tutti
