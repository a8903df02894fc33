#pragma once
// A fault to have on purpose, once: what goes wrong, on which rank, when and where. Written as
//   kill:rank=2,step=17,phase=backward; delay:rank=1,steps=5-9,phase=data,seconds=0.5; flip:seed=7
// and what is left out is drawn from seed= (0 without one), alike on all ranks. A seed alone draws the kind, too.

#include "tutti/watch/rank_status.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class IncidentKind {
  kill,         // SIGKILL to itself
  stop,         // SIGSTOP to itself
  delay,        // sleeps as it comes to the phase
  flip,         // a bit of its own copy of the state: of gradients before the update, of all else at the step's end
  drop_bucket,  // never begins that sum, and stands still at the end of the exchange
  slow_link,    // its sums begin no sooner than a link of that speed would have sent them
};

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

// An incident as it is written.
struct IncidentWish {
  std::optional<IncidentKind> kind{};
  std::uint64_t seed = 0;
  std::optional<int> rank{};
  std::optional<StepRange> steps{};
  std::optional<Phase> phase{};
  std::optional<double> seconds{};
  std::optional<double> mbps{};
  std::optional<std::string> of{};
  std::optional<std::string> tensor{};
  std::optional<std::int64_t> element{};
  std::optional<int> bit{};
  std::optional<std::int64_t> bucket{};
};

// Throws a usage error that names the word that is wrong, and what it could be.
std::vector<IncidentWish> parse_rehearsal(const std::string& text);

// A tensor of the training state of which every rank holds a whole copy.
struct HeldTensor {
  std::string of;
  std::string name;
  std::int64_t elements = 0;
};

// What there is to go wrong.
struct RehearsalStage {
  int ranks = 1;
  StepRange steps{};  // that are to come
  std::int64_t buckets = 1;
  std::vector<HeldTensor> tensors{};
};
// Throws a usage error for what is not there.
std::vector<Incident> plan_incidents(const std::vector<IncidentWish>& wishes, const RehearsalStage& stage);

}  // namespace tutti
