#pragma once
// The phase that a rank is in. The training thread reports it, and it is published where other ranks can read it even
// while this rank is stuck. Listeners (the time account, a trace, injected faults) are called at every phase change.

#include "tutti/base/enum_names.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti {

enum class Phase : std::uint32_t {
  starting,  // before the first step
  data,      // waiting for the batch
  forward,   // and the loss
  backward,
  exchange,  // starting all-reduces and driving their progress
  waiting,   // for collectives of all ranks
  update,
  evaluation,
  checkpoint,  // copying the state and handing it to the writer thread
  reports,     // end-of-step reporting, between two steps
  ending,
};
constexpr std::array<std::string_view, 11> enum_names(Phase) {
  return {"starting", "data",       "forward",    "backward", "exchange", "waiting",
          "update",   "evaluation", "checkpoint", "reports",  "ending"};
}
inline constexpr std::size_t kPhases = enum_names(Phase{}).size();

struct StepPhase {
  std::int64_t step = 0;  // the current step or the last one done, counted from 1; 0: before the first
  Phase phase = Phase::starting;
};

// The time that one phase took.
struct PhaseSpan {
  StepPhase at{};
  std::int64_t begin_ns = 0;  // as now_ns() returns it
  std::int64_t end_ns = 0;
};

// The host's monotonic clock, which all its processes share.
std::int64_t now_ns();

// The status that a rank publishes. One thread writes step and phase; any thread may increment progress.
struct StatusSlot {
  std::atomic<std::int64_t> step{0};
  std::atomic<Phase> phase{Phase::starting};
  std::atomic<std::uint64_t> progress{0};  // incremented at every sign of progress
};

class PhaseListener {
 public:
  virtual ~PhaseListener() = default;
  // Both are called in the training thread. The time spent in them belongs to the phase that begins.
  virtual void on_end(const PhaseSpan&) {}
  virtual void on_begin(const StepPhase&) {}
};

// With asynchronous work the thread runs ahead of the device. The queue receives the phases that the thread enters and
// calls RankStatus::reach when the device reaches them.
class PhaseQueue {
 public:
  virtual ~PhaseQueue() = default;
  // False: the phase counts as reached immediately.
  virtual bool enqueue(const StepPhase& at) = 0;
};

class RankStatus {
 public:
  RankStatus();
  RankStatus(const RankStatus&) = delete;
  RankStatus& operator=(const RankStatus&) = delete;

  // Publishes in this slot from now on; borrowed.
  void publish_in(StatusSlot& slot);
  // Borrowed; called in the order in which they were added.
  void add(PhaseListener& listener) { listeners_.push_back(&listener); }
  void remove(const PhaseListener& listener) { std::erase(listeners_, &listener); }

  // Borrowed. Null (the default): a phase is reached when the thread enters it.
  void set_phase_queue(PhaseQueue* queue) { queue_ = queue; }
  // Called by the queue: the phase began at `at_ns`, or when the previous phase was reached if that is later.
  void reach(const StepPhase& at, std::int64_t at_ns);

  // Ends the current phase and begins the next, which may be the same phase again.
  void enter(Phase phase) { move_to({current_.step, phase}); }
  void begin_step(std::int64_t step, Phase phase) { move_to({step, phase}); }
  // Runs `action`, which waits for all ranks, in Phase::waiting; then returns to the current phase.
  template <class Action>
  auto wait_for_ranks(Action action) {
    const Phase within = current_.phase;
    enter(Phase::waiting);
    auto result = action();
    enter(within);
    return result;
  }
  // Reports progress within the phase. Thread-safe.
  void note_progress() { slot_->progress.fetch_add(1, std::memory_order_relaxed); }

  // The phase that the thread is in, which the device may not have reached.
  const StepPhase& current() const { return current_; }

 private:
  void move_to(const StepPhase& at);
  void publish();

  StepPhase current_{};
  StepPhase reached_{};
  PhaseQueue* queue_ = nullptr;
  std::int64_t since_ns_;
  StatusSlot own_{};
  StatusSlot* slot_ = &own_;
  std::vector<PhaseListener*> listeners_;
};

}  // namespace tutti
