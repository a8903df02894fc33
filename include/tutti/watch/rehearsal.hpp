#pragma once
// Injected faults: a rehearsal hears of every phase of its rank and lets the rank's incidents happen, each once, with a
// line on stderr just before. It is made only for runs that ask for one. Incidents are written as
//   kill:rank=2,step=17,phase=backward; delay:rank=1,steps=5-9,phase=data,seconds=0.5; flip:seed=7
// What is left out is drawn from seed= (0 without one), alike on all ranks. A seed alone draws the kind, too.

#include "tutti/base/log.hpp"
#include "tutti/base/words.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

enum class IncidentKind {
  kill,         // SIGKILL to itself
  stop,         // SIGSTOP to itself
  delay,        // sleeps at the beginning of the phase
  flip,         // a bit of its own copy of the state: of gradients before the update, of all else at the step's end
  drop_bucket,  // never begins that sum, and stands still at the end of the exchange
  slow_link,    // its sums begin no sooner than a link of that speed would have sent them
};
constexpr std::array<std::string_view, 6> words_of(IncidentKind) {
  return {"kill", "stop", "delay", "flip", "drop-bucket", "slow-link"};
}

// `of` is weights, statistics, gradients, or a slot of the optimizer.
struct BitFlip {
  std::string of{};
  std::string tensor{};
  std::int64_t element = 0;
  int bit = 0;
};

struct Incident {
  IncidentKind kind = IncidentKind::kill;
  int rank = 0;
  std::int64_t first_step = 0;  // 0: before the first
  std::int64_t last_step = 0;   // beyond the first: in every step up to it
  Phase phase = Phase::data;    // of kill, stop and delay
  double seconds = 0;           // of a delay, and of each sum on a slow link
  double mbps = 0;              // 10^6 bits per second; 0: by seconds
  BitFlip flip{};
  std::int64_t bucket = 0;
};
std::string text_of(const Incident& incident);

struct StepRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// A tensor of the training state of which every rank has a whole copy.
struct FlipTarget {
  std::string of;
  std::string name;
  std::int64_t elements = 0;
};

// The run in which incidents are to happen.
struct RehearsalStage {
  int ranks = 1;
  StepRange steps{};  // that are to come
  std::int64_t buckets = 1;
  std::vector<FlipTarget> tensors{};
};

// Both throw a usage error that names the word that is wrong, and what it could be; the first for words that fit no
// run, the second also for what this run does not have.
void check_rehearsal(const std::string& text);
std::vector<Incident> plan_incidents(const std::string& text, const RehearsalStage& stage);

class Rehearsal final : public PhaseListener {
 public:
  using Flip = std::function<void(const BitFlip&)>;

  explicit Rehearsal(const Log& log);
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;
  ~Rehearsal() override;

  // A communicator whose sums are dropped or delayed as the incidents ask for; it borrows this rehearsal.
  std::unique_ptr<Communicator> between(std::unique_ptr<Communicator> communicator);
  // Before the first step, with the incidents of all ranks. `flip` flips a bit of this rank's state.
  void begin(const std::vector<Incident>& incidents, Flip flip);
  // The incidents of this rank that have not happened.
  std::vector<Incident> missed() const;

  void on_begin(const StepPhase& at) override;

  struct LinkFaults;

 private:
  struct Planned {
    Incident incident;
    std::optional<std::int64_t> done_to{};  // the last step in which it has happened
  };
  static bool is_due(const Planned& planned, const StepPhase& at);
  void happen(const Incident& incident);

  Log log_;
  Flip flip_;
  std::vector<Planned> planned_;
  std::unique_ptr<LinkFaults> link_;
};

}  // namespace tutti
