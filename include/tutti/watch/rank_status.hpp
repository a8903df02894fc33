#pragma once
// What one rank is doing, phase by phase: reported by the thread that trains, and published where others see it while
// the rank itself may be stuck. Listeners (the time account, a trace, rehearsed faults) hear of every phase.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

enum class Phase : std::uint32_t {
  starting,  // before the first step
  data,      // waiting for the batch
  forward,   // and the loss
  backward,
  exchange,  // starting sums and moving them along
  waiting,   // for sums that all ranks take part in
  update,
  evaluation,
  checkpoint,  // copying the state and handing it over to be saved
  reports,     // between two steps
  ending,
};
inline constexpr std::size_t kPhases = 11;
const char* name_of(Phase phase);

struct StepPhase {
  std::int64_t step = 0;  // the one under way or done last, counted from 1; 0: before the first
  Phase phase = Phase::starting;
};

// The time that one phase took.
struct PhaseSpan {
  StepPhase at{};
  std::int64_t begin_ns = 0;  // of now_ns()
  std::int64_t end_ns = 0;
};

// The host's monotonic clock, the same in all its processes.
std::int64_t now_ns();

// What a rank publishes. One thread writes step and phase; any thread counts progress.
struct StatusSlot {
  std::atomic<std::int64_t> step{0};
  std::atomic<Phase> phase{Phase::starting};
  std::atomic<std::uint64_t> progress{0};  // counts every sign of it
};

class PhaseListener {
 public:
  virtual ~PhaseListener() = default;
  // In the thread that trains. The time spent in here belongs to the phase that begins.
  virtual void on_end(const PhaseSpan&) {}
  virtual void on_begin(const StepPhase&) {}
};

// Where work is enqueued, the thread is ahead of the device: this takes the phases that the thread goes on to, and
// calls RankStatus::reach when the device reaches them.
class PhaseQueue {
 public:
  virtual ~PhaseQueue() = default;
  // False: the phase is reached at once.
  virtual bool take(const StepPhase& at) = 0;
};

class RankStatus {
 public:
  RankStatus();
  RankStatus(const RankStatus&) = delete;
  RankStatus& operator=(const RankStatus&) = delete;

  // Publishes there from now on; borrowed.
  void publish_in(StatusSlot& slot);
  // Borrowed; called in the order in which they were added.
  void add(PhaseListener& listener) { listeners_.push_back(&listener); }
  void remove(const PhaseListener& listener) { std::erase(listeners_, &listener); }

  // Borrowed; null, as at first: phases are reached as the thread comes to them.
  void reach_through(PhaseQueue* queue) { queue_ = queue; }
  // For the queue: the phase began at that time, or when the one before it was reached if that is later.
  void reach(const StepPhase& at, std::int64_t at_ns);

  // Ends one phase and begins the next, which may be of the same name.
  void enter(Phase phase) { move_to({current_.step, phase}); }
  void begin_step(std::int64_t step, Phase phase) { move_to({step, phase}); }
  // Runs `action`, which waits for all ranks, as Phase::waiting; then goes on with the current phase.
  template <class Action>
  auto wait_for_ranks(Action action) {
    const Phase within = current_.phase;
    enter(Phase::waiting);
    auto result = action();
    enter(within);
    return result;
  }
  // There is progress within the phase. From any thread.
  void note_progress() { slot_->progress.fetch_add(1, std::memory_order_relaxed); }

  // Where the thread is.
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
