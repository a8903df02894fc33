#pragma once
// What stands in a run's way, or will slow it down, found before it starts: one line each, with the remedy. Probes add
// what they find; gather() makes of every rank's findings the same list on all of them. And what every rank must have
// alike, with the ranks that have it otherwise.

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
  ErrorSource source = ErrorSource::usage;  // of an error, the status with which a start refuses
  std::string text;                         // "what is wrong: the remedy"
  std::vector<int> ranks{};                 // that have it; none: the text says whom it concerns
  friend bool operator==(const Finding&, const Finding&) = default;
};

class Findings {
 public:
  // One that is there already only gets more ranks.
  void add(Finding finding);
  void add(const Findings& others);
  void fail(ErrorSource source, std::string text) { add({Severity::error, source, std::move(text)}); }
  void warn(std::string text) { add({.text = std::move(text)}); }
  template <class First, class... More>
  void fail(ErrorSource source, fmt::format_string<First, More...> text, First&& first, More&&... more) {
    fail(source, fmt::format(text, std::forward<First>(first), std::forward<More>(more)...));
  }
  template <class First, class... More>
  void warn(fmt::format_string<First, More...> text, First&& first, More&&... more) {
    warn(fmt::format(text, std::forward<First>(first), std::forward<More>(more)...));
  }
  // Runs what throws alike on all ranks, if it throws; that becomes a finding. Whether it came to its end. Collective.
  bool attempt(const std::function<void()>& work);

  std::size_t count(Severity severity) const;
  // Errors first.
  const std::vector<Finding>& all() const { return findings_; }

 private:
  std::vector<Finding> findings_;
};

// Where the ranks run, for naming them.
using Hosts = std::vector<std::string>;

// Of what each rank has found by itself, all of it, with its ranks; the same on all of them. Collective.
Findings gather(World& world, const Findings& mine);
// "rank 4", "ranks 0-2, 4".
std::string ranks_text(const std::vector<int>& ranks);
// "ranks 0-2 on n1: what is wrong: the remedy".
std::string line_of(const Finding& finding, std::span<const std::string> hosts);

// Warns, also where quiet is asked for; throws the first error, on all ranks. Collective.
void warn_or_throw(World& world, const Findings& findings, const Log& log);

// What becomes of faults on the way to a run: a start refuses at the first, and `trainer check` collects them and goes
// on as far as what follows still makes sense.
class Obstacles {
 public:
  // All borrowed. Without `found`, the first fault is thrown and warnings are logged.
  Obstacles(World& world, const Log& log, Findings* found = nullptr) : world_(world), log_(log), found_(found) {}

  // Runs what throws alike on all ranks, if it throws. Whether it came to its end. Collective.
  bool attempt(const std::function<void()>& work);
  // Collective.
  void add(const Findings& findings);

 private:
  World& world_;
  const Log& log_;
  Findings* found_;
};

// One thing that all ranks must have alike.
struct Claim {
  std::string what;
  std::string value;
  std::string remedy;
};

// The options that decide on what is computed, and those that decide which collectives a rank comes to.
std::vector<Claim> option_claims(RunConfig config);
std::vector<Claim> way_claims(const RunConfig& config);
// The libraries' versions; `description` is the world's.
std::vector<Claim> version_claims(const std::string& description);

// The processor of this rank, and of the checkpoint that it resumes from; empty: none, or not known.
struct ProcessorKinds {
  std::string mine;
  std::string of_checkpoint{};
  std::string checkpoint{};  // its path
};
// Other instructions give other bits: a warning, or an error of a run that promises the same bits (--exchange exact)
// and has not been allowed to break the promise. Collective.
Findings check_processors(World& world, const RunConfig& config, const ProcessorKinds& kinds);

// Every claim in which some rank differs from rank 0; all ranks make the same claims. Collective.
Findings compare(World& world, const std::vector<Claim>& claims);

// The files of the program and its libraries, which are read only where they are not one and the same, and by one rank
// of those on a host that have the same ones. Collective.
Findings compare_programs(World& world);

// What can be found out before anything is opened and costs next to nothing: before every training. Collective.
Findings preflight_in_brief(World& world, const RunConfig& config);

}  // namespace tutti
