#pragma once
// Faults on purpose: hears of every phase and lets this rank's incidents happen, each at its place, telling of it just
// before. Made only for runs that ask for it; without one, nothing of it is on a run's way.

#include "tutti/base/log.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/watch/incident.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace tutti {

// What happens to a rank's sums in the step under way, between it and its communicator.
struct LinkFaults {
  bool loses(std::int64_t sum) const { return lost_sum && *lost_sum == sum; }
  // On the way to the others.
  std::int64_t time_ns(std::size_t bytes) const;

  std::int64_t sums_of_step = 0;           // so far
  std::optional<std::int64_t> lost_sum{};  // of those
  const Incident* slow = nullptr;
};

class Rehearsal final : public PlaceListener {
 public:
  using Flip = std::function<void(const BitFlip&)>;

  explicit Rehearsal(const Log& log) : log_(log) {}
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  // Sums then go through this rehearsal, which is borrowed.
  std::unique_ptr<Communicator> between(std::unique_ptr<Communicator> communicator);
  // From now on, with those of this rank; before the first step. `flip` turns a bit of this rank's state.
  void begin(const std::vector<Incident>& incidents, Flip flip);
  // Of this rank, what has not come about.
  std::vector<Incident> missed() const;

  void on_begin(const Place& place) override;

 private:
  struct Planned {
    Incident incident;
    std::optional<std::int64_t> done_to{};  // the last step in which it has happened
  };
  static bool is_due(const Planned& planned, const Place& place);
  void happen(const Incident& incident);

  Log log_;
  Flip flip_;
  std::vector<Planned> planned_;
  LinkFaults link_;
};

}  // namespace tutti
