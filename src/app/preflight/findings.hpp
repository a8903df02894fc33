#pragma once
// Problems that will make a run fail or slow it down, found before it starts, with one line and remedy each. Checks add
// their findings; gather() merges the findings of all ranks. Also compares the values that must be equal on all ranks.

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"

#include "../run_config.hpp"

#include <fmt/format.h>

#include <functional>
#include <span>
#include <string>
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
  // Runs `work`, which may throw the same error on all ranks; the error becomes a finding. Returns whether `work`
  // succeeded. Collective.
  bool attempt(const std::function<void()>& work);

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

// Reports what is found before a run. A training stops at the first error; `trainer check` collects errors and warnings
// and continues with the checks that are still possible.
class PreflightReporter {
 public:
  // All are borrowed. Without `found`, the first error is thrown on all ranks and warnings are logged, also with
  // --quiet.
  PreflightReporter(World& world, const Log& log, Findings* found = nullptr)
      : world_(world), log_(log), found_(found) {}

  // Of what `trainer check` calls an error, although training only warns of it.
  Severity error_of_check() const { return found_ == nullptr ? Severity::warning : Severity::error; }
  // As Findings::attempt. Without `found` it does not return after an error.
  bool attempt(const std::function<void()>& work);
  // Collective.
  void add(const Findings& findings);

 private:
  World& world_;
  const Log& log_;
  Findings* found_;
};

// A value that must be equal on all ranks.
struct AgreedValue {
  std::string what;
  std::string value;
  std::string remedy;
};

// The options that affect the result.
std::vector<AgreedValue> agreed_options(RunConfig config);
// The libraries' versions; `description` is the world's.
std::vector<AgreedValue> agreed_versions(const std::string& description);

// The kinds of processor of this rank and of the checkpoint that it resumes from; empty if unknown.
struct ProcessorKinds {
  std::string mine;
  std::string of_checkpoint{};
  std::string checkpoint{};  // its path
};
// Different instruction sets give different bits: a warning, or an error if the run promises bit-identical results
// (--exchange exact) and --allow-mixed-processors is not given. Collective.
Findings check_processors(World& world, const RunConfig& config, const ProcessorKinds& kinds);

// Reports every value in which a rank differs from rank 0. All ranks pass the same values. Collective.
Findings compare_across_ranks(World& world, const std::vector<AgreedValue>& values);

// Compares the files of the program and its libraries. They are read only if they are not the same files, and then by
// one rank per host. Collective.
Findings compare_programs(World& world);

// The cheap checks before every training, which open nothing. Collective.
Findings quick_checks(World& world, const RunConfig& config);

}  // namespace tutti
