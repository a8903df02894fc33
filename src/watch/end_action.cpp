#include "end_action.hpp"

#include <chrono>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti {

struct EndAction::Kept {
  std::mutex mutex;  // held while it is carried out
  std::function<void()> action;
};

std::shared_ptr<EndAction::Kept> EndAction::make_kept() { return std::make_shared<Kept>(); }

void EndAction::set(std::function<void()> action) {
  const std::lock_guard lock(kept_->mutex);
  kept_->action = std::move(action);
}

// The thread may be stuck for good; it is left to the process's end.
void EndAction::carry_out(double seconds) const {
  std::promise<void> promise;
  const std::future<void> done = promise.get_future();
  std::thread([kept = kept_, promise = std::move(promise)]() mutable {
    const std::lock_guard lock(kept->mutex);
    if (kept->action) kept->action();
    promise.set_value();
  }).detach();
  done.wait_for(std::chrono::duration<double>(seconds));
}

}  // namespace tutti
