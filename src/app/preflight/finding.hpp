#pragma once
// What stands in a run's way, or will slow it down, found before it starts: one line each, with the remedy. Probes add
// what they find; gather() makes of every rank's findings the same list on all of them.

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

enum class Severity { doomed, warning };

struct Finding {
  Severity severity = Severity::warning;
  ErrorSource source = ErrorSource::usage;  // of a doomed one, the status with which a start refuses
  std::string text;                         // "what is wrong: the remedy"
  std::vector<int> ranks{};                 // that have it; none: the text says whom it concerns
  friend bool operator==(const Finding&, const Finding&) = default;
};

class Findings {
 public:
  // One that is there already only gets more ranks.
  void add(Finding finding);
  void add(const Findings& others);
  void doom(ErrorSource source, const std::string& text) { add({Severity::doomed, source, text}); }
  void warn(const std::string& text) { add({.text = text}); }
  // Runs what throws alike on all ranks, if it throws; that becomes a finding. Whether it came to its end. Collective.
  bool attempt(const std::function<void()>& work);

  std::size_t count(Severity severity) const;
  // The doomed ones first.
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

// Warns, also where quiet is asked for; throws the first of what dooms the run, on all ranks. Collective.
void refuse_or_tell(World& world, const Findings& findings, const Log& log);

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

}  // namespace tutti
