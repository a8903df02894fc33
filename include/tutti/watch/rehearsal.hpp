#pragma once
// Injected faults (--rehearse). A fault injector listens to its rank's phases and triggers the rank's faults, each
// once, with a line on stderr just before. Runs without --rehearse have none.

#include "tutti/backend/backend.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/watch/fault_spec.hpp"
#include "tutti/watch/rank_status.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

// What a layer has just written, for a part whose positions in the global batch begin at first_position.
struct LayerResults {
  std::uint32_t purpose = 0;  // random_purpose(layer name)
  Phase pass = Phase::forward;
  std::int64_t first_position = 0;
  std::int64_t samples = 0;
  std::span<const Tensor> words;  // i32
};

class FaultInjector final : public PhaseListener {
 public:
  using Flip = std::function<void(const BitFlip&)>;

  explicit FaultInjector(const Log& log) : log_(log) {}
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  // A communicator whose collectives are dropped or delayed by the faults; it borrows this injector.
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator);
  // A backend whose layers write the wrong values of the faults in training. It borrows both, and has no graphs.
  std::unique_ptr<Backend> wrap(Backend& backend);
  // Call it before the first step with the faults of all ranks. `flip` flips a bit of this rank's state.
  void begin(const std::vector<Fault>& faults, Flip flip);
  // The faults of this rank that were not triggered.
  std::vector<Fault> untriggered() const;

  void on_begin(const StepPhase& at) override;

 private:
  friend class RehearsedCommunicator;
  friend class RehearsedLayer;

  struct Planned {
    Fault fault;
    std::optional<std::int64_t> last_injected{};  // step
  };
  static bool is_due(const Planned& planned, const StepPhase& at);
  void inject(const Fault& fault);
  // Called by any thread that computes layers. Waits.
  void falsify(Backend& backend, Stream& stream, const LayerResults& results);

  Log log_;
  Flip flip_;
  std::vector<Planned> planned_;
  // In the current step: the number of collectives so far, the index of a dropped one, and the fault of a slow link.
  std::int64_t collectives_ = 0;
  std::optional<std::int64_t> dropped_;
  const Fault* slow_link_ = nullptr;

  std::atomic<std::int64_t> step_{0};
  std::mutex mutex_;  // of wrong_
  std::vector<Planned> wrong_;
};

}  // namespace tutti
