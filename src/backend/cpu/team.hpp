#pragma once
// Threads that work off the tasks of one pass beside the thread that runs it, and sleep between passes. Chance decides
// who takes which task, so that nothing may depend on it: tasks are cut without regard to the number of threads.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace tutti::cpu {

class Team {
 public:
  // The calling thread counts as one of them.
  explicit Team(int threads);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const noexcept { return static_cast<int>(threads_.size()) + 1; }
  // Returns when all of task(0) .. task(tasks - 1) have returned. They must not throw.
  void run(int tasks, const std::function<void(int)>& task);

 private:
  void work(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable_any work_;
  std::condition_variable done_;
  const std::function<void(int)>* task_ = nullptr;
  int tasks_ = 0;
  int next_ = 0;
  int unfinished_ = 0;
  std::vector<std::jthread> threads_;  // the last member: stopped and joined before the others go
};

}  // namespace tutti::cpu
