#pragma once
// What one watcher knows of all ranks: those of its host by their page, the others by what their hosts have sent.

#include "datagram.hpp"
#include "roster.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

class JobView {
 public:
  // The roster is borrowed.
  JobView(const Roster& roster, int own_rank, std::int64_t now_ns);

  void take_own(std::span<const RankState> states, std::int64_t now_ns) { take(own_host_, states, now_ns); }
  // From another host; what does not fit the roster is left out.
  void take(const Datagram& datagram, std::int64_t now_ns);

  std::size_t own_host() const { return own_host_; }
  // Since anything was heard of that host, or since the start.
  double silent_seconds(std::size_t host, std::int64_t now_ns) const;
  std::vector<std::string> hosts_never_heard() const;
  // Whether any rank, on whichever host, has told of an error of its own.
  bool has_failed() const;
  // A host that is silent for so long is lost.
  std::span<const RankView> look(std::int64_t now_ns, double lost_seconds);

 private:
  struct Heard {
    std::int64_t last_ns = 0;
    bool ever = false;
    bool reported = false;  // of its ranks
  };

  void take(std::size_t host, std::span<const RankState> states, std::int64_t now_ns);

  const Roster& roster_;
  std::size_t own_host_;
  std::vector<Heard> heard_;     // by host
  std::vector<RankView> views_;  // by rank
};

}  // namespace tutti
