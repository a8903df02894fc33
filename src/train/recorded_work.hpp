#pragma once
// Work on a stream that is the same in many steps: it is captured as a graph where the backend has graphs.

#include "tutti/backend/backend.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace tutti {

class RecordedWork {
 public:
  // All that the work depends on but the values in its memory.
  using Key = std::vector<const void*>;

  // Borrowed.
  explicit RecordedWork(Backend& backend) : backend_(backend) {}

  // Enqueues the work by calling `enqueue`, from the second time with this key on as a graph. Asynchronous.
  void run(Stream& stream, const Key& key, const std::function<void()>& enqueue) {
    const auto known = std::ranges::find(recordings_, key, &Recording::key);
    if (known == recordings_.end()) {
      if (recordings_.size() < kMostRecordings) recordings_.push_back({key});
      return enqueue();
    }
    if (!std::exchange(known->was_captured, true)) known->graph = backend_.capture(stream, enqueue);
    known->graph ? known->graph->launch(stream) : enqueue();
  }

 private:
  struct Recording {
    Key key;
    bool was_captured = false;
    std::unique_ptr<Graph> graph{};  // null if it could not be
  };
  static constexpr std::size_t kMostRecordings = 32;

  Backend& backend_;
  std::vector<Recording> recordings_;
};

}  // namespace tutti
