#pragma once
// The one place where oneDNN's exceptions become ours. Its C++ interface throws for every bad status, so a
// call is checked by being made inside check().

#include "tutti/base/error.hpp"

#include <dnnl.hpp>
#include <dnnl_debug.h>
#include <fmt/format.h>

#include <source_location>
#include <string>
#include <utility>

namespace tutti::cpu {

[[noreturn]] inline void raise(const dnnl::error& error, const std::string& doing, std::source_location where) {
  throw Error(ErrorSource::onednn, fmt::format("{}: {} ({})", doing, error.message, dnnl_status2str(error.status)),
              where);
}

// `doing` completes the message, as in "making conv2d on 64x1x28x28"; it is a callable, so that it costs
// nothing when all is well.
template <class Doing, class Call>
auto check(Doing&& doing, Call&& call, std::source_location where = std::source_location::current()) {
  try {
    return std::forward<Call>(call)();
  } catch (const dnnl::error& error) {
    raise(error, doing(), where);
  }
}

}  // namespace tutti::cpu
