#include "backend/cpu/team.hpp"

#include <algorithm>

namespace tutti::cpu {

void Team::run(int tasks, const std::function<void(int)>& task) {
  const int threads = std::min(threads_, tasks);
  if (threads <= 1) {
    for (int i = 0; i < tasks; ++i) task(i);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int i = 0; i < tasks; ++i) task(i);
}

}  // namespace tutti::cpu
