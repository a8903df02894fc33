#pragma once
// What is known of the ranks of a job: the state that each host's watcher publishes, the datagrams in which hosts send
// each other these states, and what one watcher makes of them.

#include "tutti/base/words.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tutti {

// How a rank has ended.
enum class RankEnd : std::uint32_t {
  none,
  left,      // in order
  failed,    // by an error that it has reported
  signaled,  // by a signal to end
};

// What its process does, according to the operating system.
enum class Activity : std::uint32_t {
  unknown,  // not looked at: it made progress a moment ago
  idle,
  computing,
  using_disk,
  waiting_for_disk,
  waiting_for_core,  // that others use
  stopped,
  traced,  // by a debugger
  gone,
};
constexpr std::array<std::string_view, 9> words_of(Activity) {
  return {"not looked at", "asleep",        "computing", "using the disk", "waiting for a disk", "waiting for a core",
          "stopped",       "in a debugger", "gone"};
}

// All of its bytes are sent.
struct RankState {
  std::int32_t rank = 0;
  Phase phase = Phase::starting;
  std::int64_t step = 0;
  std::uint64_t progress = 0;  // signs of it
  std::uint64_t begun = 0;     // collectives
  std::uint64_t done = 0;      // likewise
  double quiet_seconds = 0;    // since anything of the above changed
  RankEnd end = RankEnd::none;
  Activity activity = Activity::unknown;

  // Changes with every progress.
  std::uint64_t moves() const { return progress + begun + done; }
};
static_assert(std::is_trivially_copyable_v<RankState> && sizeof(RankState) == 56);

// Whether the rank's host is heard by the watcher.
enum class Contact { good, lost, never };

struct RankView {
  RankState state;
  std::string_view host{};
  Contact contact = Contact::good;
  double silent_seconds = 0;
};

struct HostRanks {
  std::string name;
  std::vector<int> ranks;  // ascending; the first is its local rank 0
};

// Which ranks are on which host, the same on all of them.
struct Roster {
  std::vector<HostRanks> hosts;  // by their first ranks
  std::vector<std::size_t> host_of_rank;

  std::size_t host_of(int rank) const { return host_of_rank[static_cast<std::size_t>(rank)]; }
};

// Datagrams are exchanged by one version of this program on machines of one kind:
//
//   bytes 0-3    magic, with the version in its last byte
//   bytes 4-7    kind
//   bytes 8-15   nonce of the job
//   bytes 16-19  the sender's rank
//   bytes 20-23  number of states that follow
//   then         that many RankState
//
// Whatever does not match this to the last byte is dropped.
enum class DatagramKind : std::uint32_t {
  report,  // the states of the sender's host
  heard,   // the answer to it
  ending,  // the job is being ended
};

struct Datagram {
  DatagramKind kind = DatagramKind::report;
  std::int32_t sender = 0;
  std::vector<RankState> states{};
};

constexpr std::size_t kMostStates = 24;      // in one datagram, which stays below
constexpr std::size_t kMostDatagram = 1400;  // bytes, so that no usual network fragments it

// In as many datagrams as it takes.
std::vector<std::vector<std::byte>> pack(const Datagram& datagram, std::uint64_t nonce);
// Empty for bytes of another job, version or size, and for values out of range.
std::optional<Datagram> unpack(std::span<const std::byte> bytes, std::uint64_t nonce);

// What one watcher knows of all ranks: those of its host by their page, the others by what their hosts have sent.
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
  // Whether any rank, on whichever host, has reported an error of its own.
  bool has_failed() const;
  // By rank. A host that is silent for `lost_seconds` is lost.
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
