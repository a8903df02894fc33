#pragma once
// Problems that will make a run fail or slow it down, found before it starts, with one line and remedy each. Checks
// return their findings; gather() merges the findings of all ranks. A training logs the warnings and stops at errors;
// `trainer check` continues with the checks that are still possible, and reports all.

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

enum class Severity { error, warning };

struct Finding {
  Severity severity = Severity::warning;
  ErrorSource source = ErrorSource::usage;  // of an error: decides the exit status
  std::string text;                         // "problem: remedy"
  std::vector<int> ranks{};                 // affected ranks; empty if the text names them
};

class Findings {
 public:
  // If the finding is there already, only adds its ranks.
  void add(Finding finding);
  void add(const Findings& others);
  template <class... Values>
  void fail(ErrorSource source, fmt::format_string<Values...> text, Values&&... values) {
    add({Severity::error, source, fmt::format(text, std::forward<Values>(values)...)});
  }
  template <class... Values>
  void warn(fmt::format_string<Values...> text, Values&&... values) {
    add({.text = fmt::format(text, std::forward<Values>(values)...)});
  }
  // The result of `work`, or whether it succeeded if it has none. If it throws the same error on all ranks, the error
  // becomes a finding, and the result is empty. Collective.
  template <class Work, class Result = std::invoke_result_t<Work>>
  auto attempt(const Work& work) -> std::conditional_t<std::is_void_v<Result>, bool, std::optional<Result>> {
    try {
      if constexpr (!std::is_void_v<Result>)
        return work();
      else
        return work(), true;
    } catch (const Error& error) {
      if (error.scope() != ErrorScope::all_ranks) throw;
      fail(error.source(), "{}", error.describe());
      return {};
    }
  }

  std::size_t count(Severity severity) const;
  // Errors first.
  const std::vector<Finding>& all() const { return findings_; }

 private:
  std::vector<Finding> findings_;
};

// The host of each rank.
using Hosts = std::vector<std::string>;

// Merges the findings of all ranks, with their ranks, into the same list on all. Collective.
Findings gather(World& world, const Findings& mine);
// "ranks 0-2 on n1: problem: remedy".
std::string line_of(const Finding& finding, std::span<const std::string> hosts);
// "rank 4", "ranks 0-2, 4".
std::string ranks_text(const std::vector<int>& ranks);

// Logs the warnings, also with --quiet, and throws the first error, with the number of the others. Collective.
void log_or_throw(World& world, const Findings& findings, const Log& log);

}  // namespace tutti
