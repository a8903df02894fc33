#pragma once
// The threads that work off the tasks of one pass: those of OpenMP, which the library uses, too. A second set would
// find the cores taken by threads of the first that spin: with two threads, ResNet-18's steps took 1.3 times as long.
// Chance decides who takes which task, so that nothing may depend on it: tasks are cut without regard to the number of
// threads.

#include <functional>

namespace tutti::cpu {

class Team {
 public:
  // The calling thread counts as one of them.
  explicit Team(int threads) : threads_(threads) {}

  int size() const noexcept { return threads_; }
  // Returns when all of task(0) .. task(tasks - 1) have returned. They must not throw.
  void run(int tasks, const std::function<void(int)>& task);

 private:
  int threads_;
};

}  // namespace tutti::cpu
