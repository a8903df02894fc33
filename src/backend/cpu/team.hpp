#pragma once
// Threads that work off the tasks of one pass beside the thread that runs it, and sleep between passes. Chance decides
// who takes which task, so that nothing may depend on it: tasks are cut without regard to the number of threads.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::cpu {

class Team {
 public:
  // The calling thread counts as one of them.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Returns when all of task(0) .. task(tasks - 1) have returned. They must not throw.
  void run(int tasks, const std::function<void(int)>& task);

 private:
  void work(std::unique_lock<std::mutex>& lock);
  void wait_for_work();

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  const std::function<void(int)>* task_ = nullptr;
  int tasks_ = 0;
  int next_ = 0;
  int unfinished_ = 0;
  bool ending_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace tutti::cpu
