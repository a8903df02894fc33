#pragma once
// The faults that --rehearse injects, as users write them:
//   kill:rank=2,step=17,phase=backward; delay:rank=1,steps=5-9,phase=data,seconds=0.5; flip:seed=7;
//   wrong:rank=2,steps=30-99,layer=conv1,pass=backward,kind=bit
// Fields that are left out are drawn from seed= (default 0), with the same result on all ranks. A seed without a kind
// draws the kind, too, from all but `wrong`, which only an audit of the parts reports.

#include "tutti/base/enum_names.hpp"
#include "tutti/watch/rank_status.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class FaultKind {
  kill,         // SIGKILL to itself
  stop,         // SIGSTOP to itself
  delay,        // sleeps at the beginning of the phase
  flip,         // flips a bit of its own copy of the state: gradients before the update, others at the step's end
  drop_bucket,  // never starts that bucket's collective, and hangs at the end of the exchange
  slow_link,    // starts its collectives only after a link of that speed would have sent them
  wrong,        // a layer writes a wrong value: once, or whenever it is computed in a range of steps
};
constexpr std::array<std::string_view, 7> enum_names(FaultKind) {
  return {"kill", "stop", "delay", "flip", "drop-bucket", "slow-link", "wrong"};
}

// `block` is weights, statistics, gradients, or a slot of the optimizer.
struct BitFlip {
  std::string block{};
  std::string tensor{};
  std::int64_t element = 0;
  int bit = 0;
};

enum class WrongKind {
  bit,    // is flipped
  scale,  // the value is doubled
  stuck,  // the value is always the same
};
constexpr std::array<std::string_view, 3> enum_names(WrongKind) { return {"bit", "scale", "stuck"}; }

// What a layer writes wrong, in the pass that Fault::phase names.
struct WrongResult {
  std::string layer{};
  WrongKind kind = WrongKind::bit;
  std::int64_t element = 0;  // of the 32-bit words that the layer writes, modulo their number
  int bit = 0;
  std::int64_t position = -1;  // only in the part with this position of the global batch; negative: in any
};
// The word that is written instead.
std::uint32_t wrong_word(const WrongResult& wrong, std::uint32_t word);

struct Fault {
  FaultKind kind = FaultKind::kill;
  int rank = 0;
  std::int64_t first_step = 0;  // 0: before the first
  std::int64_t last_step = 0;   // if greater than the first: every step up to it
  Phase phase = Phase::data;    // for kill, stop and delay; for wrong, forward or backward
  double seconds = 0;           // length of a delay, or of each collective on a slow link
  double mbps = 0;              // 10^6 bits per second; 0: use seconds
  BitFlip flip{};
  std::int64_t bucket = 0;
  WrongResult wrong{};
};
std::string text_of(const Fault& fault);

struct StepRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// A tensor of the training state of which every rank has a whole copy.
struct FlipTarget {
  std::string block;
  std::string name;
  std::int64_t elements = 0;
};

// The run into which faults are injected.
struct RehearsedRun {
  int ranks = 1;
  StepRange steps{};  // still to be done
  std::int64_t buckets = 1;
  std::vector<FlipTarget> tensors{};
  std::vector<std::string> layers{};
};

// Both throw a usage error that names the invalid word and the valid choices: the first for text that is invalid for
// every run, the second also for ranks, steps or tensors that this run does not have.
void validate_rehearsal(const std::string& text);
// Whether a fault of the text is `wrong`.
bool rehearses_wrong_results(const std::string& text);
std::vector<Fault> plan_faults(const std::string& text, const RehearsedRun& run);

}  // namespace tutti
