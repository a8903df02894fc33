#include "recorded_work.hpp"

#include <algorithm>
#include <utility>

namespace tutti {

void RecordedWork::run(Stream& stream, const Key& key, const std::function<void()>& enqueue) {
  const auto known = std::ranges::find(recordings_, key, &Recording::key);
  if (known == recordings_.end()) {
    if (recordings_.size() < kMostRecordings) recordings_.push_back({key});
    return enqueue();
  }
  if (!std::exchange(known->was_captured, true)) known->graph = backend_.capture(stream, enqueue);
  known->graph ? known->graph->launch(stream) : enqueue();
}

}  // namespace tutti
