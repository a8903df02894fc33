#include "queued_messages.hpp"

#include <algorithm>

namespace tutti {

double QueuedMessages::play(const std::vector<QueuedOperation>& operations, double after) {
  std::vector<Flight> flights(operations.size());
  const auto over = [&](std::size_t i) { return flights[i].run == operations[i].runs.size(); };
  std::size_t oldest = 0;
  std::size_t admitted = 0;
  double done = 0;  // all before the oldest
  while (oldest < operations.size()) {
    for (; admitted < std::min(operations.size(), oldest + kSumsInFlight); ++admitted) {
      flights[admitted].time = next_look(std::max(operations[admitted].ready, done));
    }
    Flight* next = nullptr;
    for (std::size_t i = oldest; i < admitted; ++i) {
      if (!over(i) && (next == nullptr || flights[i].time < next->time)) next = &flights[i];
    }
    if (next != nullptr) send(operations[static_cast<std::size_t>(next - flights.data())], *next);
    for (; oldest < admitted && over(oldest); ++oldest) done = std::max(done, flights[oldest].time);
  }
  return std::max(done, after);
}

double QueuedMessages::next_look(double time) const {
  const auto look = std::ranges::lower_bound(looks_, time);
  return look == looks_.end() ? time : *look;
}

void QueuedMessages::send(const QueuedOperation& operation, Flight& flight) {
  const MessageRun& run = operation.runs[flight.run];
  const Link& link = links_[run.link];
  double& free = free_[run.link];
  free = std::max(flight.time, free) + run.bytes / link.bytes_per_second;
  flight.time = next_look(free + link.latency);
  if (++flight.sent < run.messages) return;
  flight.sent = 0;
  ++flight.run;
}

}  // namespace tutti
