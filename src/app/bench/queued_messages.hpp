#pragma once
// Operations of the exchange on their way, as one rank sees them: messages one after the other within an operation, a
// few operations at once, and links that serve one message at a time. Plays out src/comm/mpi/operation_queue.

#include "tutti/comm/communicator.hpp"

#include "link_fit.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tutti {

// So many messages over one link, each sent when the one before has arrived.
struct MessageRun {
  std::int64_t messages = 0;
  double bytes = 0;  // of each
  std::size_t link = 0;
};

struct QueuedOperation {
  double ready = 0;  // from when on it may start
  std::vector<MessageRun> runs;
};

class QueuedMessages {
 public:
  explicit QueuedMessages(std::vector<Link> links) : links_(std::move(links)), free_(links_.size()) {}

  // Until the last of these times, ascending, messages are sent and taken in at them alone; then, and with none, at any
  // time.
  void look_only_at(std::vector<double> times) { looks_ = std::move(times); }

  // When the last operation is done; `after` when there is none. Those of an earlier call are over.
  double play(const std::vector<QueuedOperation>& operations, double after);

 private:
  struct Flight {
    double time = 0;  // of its next message, or of its end
    std::size_t run = 0;
    std::int64_t sent = 0;
  };

  double next_look(double time) const;
  // Moves the operation on by one message.
  void send(const QueuedOperation& operation, Flight& flight);

  std::vector<Link> links_;
  std::vector<double> free_;  // by link: when it has sent all so far
  std::vector<double> looks_;
};

}  // namespace tutti
