#pragma once
// A watcher's view of the ranks of a job: the state of each rank, the datagrams in which hosts send each other these
// states, and the states as last received.

#include "tutti/base/enum_names.hpp"
#include "tutti/watch/rank_status.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tutti {

// How a rank has ended.
enum class RankEnd : std::uint32_t {
  none,
  finished,
  failed,    // with an error that it has reported
  signaled,  // by a termination signal
};

// The activity of its process, according to the operating system.
enum class Activity : std::uint32_t {
  unknown,  // not measured, because it made progress recently
  idle,
  computing,
  using_disk,
  waiting_for_disk,
  waiting_for_core,  // used by other processes
  stopped,
  in_debugger,  // by a debugger
  gone,
};
constexpr std::array<std::string_view, 9> enum_names(Activity) {
  return {"not measured", "asleep",        "computing", "using the disk", "waiting for a disk", "waiting for a core",
          "stopped",      "in a debugger", "gone"};
}

// Sent between hosts as raw bytes.
struct RankState {
  std::int32_t rank = 0;
  Phase phase = Phase::starting;
  std::int64_t step = 0;
  std::uint64_t progress = 0;  // as in StatusSlot
  std::uint64_t begun = 0;     // collectives
  std::uint64_t done = 0;      // collectives
  double quiet_seconds = 0;    // since any of the above changed
  RankEnd end = RankEnd::none;
  Activity activity = Activity::unknown;

  // Increases with all progress.
  std::uint64_t progress_count() const { return progress + begun + done; }
};
static_assert(std::is_trivially_copyable_v<RankState> && sizeof(RankState) == 56);

// Whether the watcher receives datagrams from the rank's host.
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

// Which ranks are on which host; equal on all ranks.
struct Roster {
  std::vector<HostRanks> hosts;  // ordered by their first ranks
  std::vector<std::size_t> host_of_rank;

  std::size_t host_of(int rank) const { return host_of_rank[static_cast<std::size_t>(rank)]; }
};

enum class DatagramKind : std::uint32_t {
  report,  // the states of the sender's host
  heard,   // the reply to a report
  ending,  // the job is being ended
};

constexpr std::size_t kMaxStates = 24;  // per datagram

// Datagrams are exchanged between processes of the same version on machines of the same architecture: this struct,
// without the states after the first `count`. Others are dropped.
struct Datagram {
  std::uint32_t magic = 0x54545701;  // with the version in its last byte
  DatagramKind kind = DatagramKind::report;
  std::uint64_t nonce = 0;  // of the job
  std::int32_t sender = 0;  // a rank
  std::uint32_t count = 0;  // of states
  std::array<RankState, kMaxStates> states{};

  std::size_t bytes() const { return offsetof(Datagram, states) + count * sizeof(RankState); }
  std::span<const RankState> sent_states() const { return std::span(states).first(count); }
  // False for bytes of another job, version or size, and for values out of range.
  bool is_valid(std::size_t received_bytes, std::uint64_t nonce_of_job) const;
};
// Below the MTU of usual networks, so that it is not fragmented.
static_assert(std::is_trivially_copyable_v<Datagram> && sizeof(Datagram) <= 1400);

// One watcher's view of all ranks: those of its host from shared memory, the others from their hosts' datagrams.
class JobView {
 public:
  // The roster is borrowed.
  JobView(const Roster& roster, int own_rank, std::int64_t now_ns);

  void record_own(std::span<const RankState> states, std::int64_t now_ns) { record(own_host_, states, now_ns); }
  // Records a datagram from another host; ignores states that do not match the roster.
  void record(const Datagram& datagram, std::int64_t now_ns);

  std::size_t own_host() const { return own_host_; }
  // Since the last datagram from that host, or since the start.
  double silent_seconds(std::size_t host, std::int64_t now_ns) const;
  std::vector<std::string> hosts_never_contacted() const;
  // Whether any rank of any host has reported an error.
  bool has_failed() const;
  // Updates the contacts and returns the views by rank. A host that is silent for `lost_seconds` is lost.
  std::span<const RankView> refresh(std::int64_t now_ns, double lost_seconds);

 private:
  struct Heard {
    std::int64_t last_ns = 0;
    bool ever = false;
    bool reported = false;  // has sent states of its ranks
  };

  void record(std::size_t host, std::span<const RankState> states, std::int64_t now_ns);

  const Roster& roster_;
  std::size_t own_host_;
  std::vector<Heard> heard_;     // by host
  std::vector<RankView> views_;  // by rank
};

}  // namespace tutti
