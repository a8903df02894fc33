#include "backend/cpu/team.hpp"

#include "backend/cpu/library.hpp"

namespace tutti::cpu {

Team::Team(int threads) {
  for (int i = 1; i < threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) {
      set_thread_environment(1);
      std::unique_lock lock(mutex_);
      while (work_.wait(lock, stop, [this] { return next_ < tasks_; })) work(lock);
    });
  }
}

void Team::run(int tasks, const std::function<void(int)>& task) {
  if (threads_.empty() || tasks == 1) {
    for (int i = 0; i < tasks; ++i) task(i);
    return;
  }
  std::unique_lock lock(mutex_);
  task_ = &task;
  tasks_ = tasks;
  next_ = 0;
  unfinished_ = tasks;
  work_.notify_all();
  work(lock);
  done_.wait(lock, [this] { return unfinished_ == 0; });
}

void Team::work(std::unique_lock<std::mutex>& lock) {
  while (next_ < tasks_) {
    const int mine = next_++;
    lock.unlock();
    (*task_)(mine);
    lock.lock();
    if (--unfinished_ == 0) done_.notify_one();
  }
}

}  // namespace tutti::cpu
