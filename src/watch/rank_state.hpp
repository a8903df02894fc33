#pragma once
// What is known of one rank at one moment: published by its host's watcher, sent between hosts as it is, and judged.

#include "tutti/watch/rank_status.hpp"

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace tutti {

// How a rank has come to its end.
enum class RankEnd : std::uint32_t {
  none,
  left,      // in order
  failed,    // by an error that it has told
  signaled,  // by a signal to end
};

// What its process does, as the system tells.
enum class Activity : std::uint32_t {
  unknown,  // not looked at: it was in motion a moment ago
  idle,
  computing,
  using_disk,
  waiting_for_disk,
  waiting_for_core,  // that others use
  stopped,
  traced,  // held by a debugger
  gone,
};
std::string_view name_of(Activity activity);

// All of its bytes are sent.
struct RankState {
  std::int32_t rank = 0;
  Phase phase = Phase::starting;
  std::int64_t step = 0;
  std::uint64_t signs = 0;   // of progress
  std::uint64_t begun = 0;   // collectives
  std::uint64_t done = 0;    // likewise
  double quiet_seconds = 0;  // since anything of the above changed
  RankEnd end = RankEnd::none;
  Activity activity = Activity::unknown;

  // Anything that changes is progress.
  std::uint64_t moves() const { return signs + begun + done; }
};
static_assert(std::is_trivially_copyable_v<RankState> && sizeof(RankState) == 56);

// Whether its host is heard by whoever judges.
enum class Contact { good, lost, never };

struct RankView {
  RankState state;
  std::string_view host{};
  Contact contact = Contact::good;
  double silent_seconds = 0;
};

}  // namespace tutti
