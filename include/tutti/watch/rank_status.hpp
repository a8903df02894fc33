#pragma once
// What one rank is doing: told by its thread that trains, phase by phase, and published where others see it while the
// rank itself may be stuck. Listeners (an account of time, a trace, rehearsed faults) hear of every phase as it begins
// and ends. It draws no conclusions.

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

struct Place {
  std::int64_t step = 0;  // the one under way or done last, counted from 1; 0: before the first
  Phase phase = Phase::starting;
};

// A stretch of time in one place.
struct Stay {
  Place place{};
  std::int64_t begin_ns = 0;  // of now_ns()
  std::int64_t end_ns = 0;
};

// The host's monotonic clock, the same in all its processes.
std::int64_t now_ns();

// What is published, by one thread but for signs; other threads and processes read it.
struct PlaceSlot {
  std::atomic<std::int64_t> step{0};
  std::atomic<Phase> phase{Phase::starting};
  std::atomic<std::uint64_t> signs{0};  // of progress, this one's number
};

class PlaceListener {
 public:
  virtual ~PlaceListener() = default;
  // In the thread that trains. What happens in here counts as part of the phase that begins.
  virtual void on_end(const Stay&) {}
  virtual void on_begin(const Place&) {}
  // A layer's forward or backward has been done, or enqueued.
  virtual void on_layer() {}
};

// Where work is enqueued the thread is ahead of what is done: this takes the places that the thread goes on to, and
// says when they are reached (RankStatus::reach).
class PlaceQueue {
 public:
  virtual ~PlaceQueue() = default;
  // False: the place is reached at once.
  virtual bool take(const Place& place) = 0;
};

class RankStatus {
 public:
  RankStatus();
  RankStatus(const RankStatus&) = delete;
  RankStatus& operator=(const RankStatus&) = delete;

  // Publishes there from now on; borrowed.
  void publish_in(PlaceSlot& slot);
  // Borrowed; told in the order of their coming.
  void add(PlaceListener& listener) { listeners_.push_back(&listener); }
  void remove(const PlaceListener& listener) { std::erase(listeners_, &listener); }

  // Borrowed; null, as at first: places are reached as the thread comes to them.
  void reach_through(PlaceQueue* queue) { queue_ = queue; }
  // From then on, or from the last place if that was reached later. For the queue.
  void reach(const Place& place, std::int64_t at_ns);

  // Ends one phase and begins the next, also one of the same name.
  void enter(Phase phase) { move_to({place_.step, phase}); }
  void begin_step(std::int64_t step, Phase phase) { move_to({step, phase}); }
  // Waits in `action` for all ranks, within a phase that goes on afterwards.
  template <class Action>
  auto meet(Action action) {
    const Phase within = place_.phase;
    enter(Phase::waiting);
    auto result = action();
    enter(within);
    return result;
  }
  // There is progress within the phase. In any thread.
  void sign() { slot_->signs.fetch_add(1, std::memory_order_relaxed); }
  // A sign that listeners are told of.
  void end_layer() {
    sign();
    for (PlaceListener* const listener : listeners_) listener->on_layer();
  }

  // Where the thread is.
  const Place& place() const { return place_; }

 private:
  void move_to(const Place& place);
  void publish();

  Place place_{};
  Place reached_{};
  PlaceQueue* queue_ = nullptr;
  std::int64_t since_ns_;
  PlaceSlot own_{};
  PlaceSlot* slot_ = &own_;
  std::vector<PlaceListener*> listeners_;
};

}  // namespace tutti
