#include "train/phase_timeline.hpp"

#include "support/late_device.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tutti {
namespace {

using testing_support::LateDevice;
using testing_support::MemoryBackend;

constexpr std::int64_t kSecond = 1'000'000'000;

class Stays : public PhaseListener {
 public:
  void on_end(const PhaseSpan& span) override { all.push_back(span); }
  std::vector<PhaseSpan> all;
};

// One rank with a simulated device that needs a second for each operation.
struct SimulatedRank {
  explicit SimulatedRank(unsigned seed) : device(seed) { rank_status.add(spans); }

  void work(Phase phase, int seconds) {
    rank_status.enter(phase);
    for (int i = 0; i < seconds; ++i) device.enqueue(*stream, [] {});
  }
  // Two parts and two buckets.
  void step(std::int64_t number) {
    rank_status.begin_step(number, Phase::data);
    for (int part = 0; part < 2; ++part) {
      work(Phase::forward, 2);
      work(Phase::backward, 3);
      work(Phase::exchange, 0);
      work(Phase::backward, 1);
    }
    work(Phase::exchange, 1);
    work(Phase::waiting, 4);
    work(Phase::update, 1);
    rank_status.enter(Phase::reports);
  }

  LateDevice device;
  std::unique_ptr<Stream> stream = device.make_stream();
  RankStatus rank_status;
  StatusSlot slot;
  Stays spans;
  PhaseTimeline timeline{device, *stream, rank_status};
};

// The phase and seconds of each span of a step, except the last one, whose end the host may see late.
using PhaseSeconds = std::vector<std::pair<Phase, std::int64_t>>;

PhaseSeconds phase_seconds_of(const std::vector<PhaseSpan>& spans, std::int64_t step) {
  PhaseSeconds phases;
  for (const PhaseSpan& span : spans) {
    if (span.at.step == step) phases.emplace_back(span.at.phase, (span.end_ns - span.begin_ns + kSecond / 2) / kSecond);
  }
  return phases;
}

TEST(PhaseTimeline, TimesPhasesByTheDevicesClockHoweverFarTheHostIsAhead) {
  const PhaseSeconds expected{{Phase::data, 0},    {Phase::forward, 2}, {Phase::backward, 2 + 2 * 4 + 1},
                              {Phase::waiting, 4}, {Phase::update, 1},  {Phase::reports, 0}};
  for (unsigned seed = 0; seed < 20; ++seed) {
    SimulatedRank rank(seed);
    for (std::int64_t step = 1; step <= 5; ++step) rank.step(step);
    rank.timeline.synchronize();
    rank.rank_status.enter(Phase::checkpoint);
    for (std::int64_t step = 1; step <= 5; ++step) EXPECT_EQ(phase_seconds_of(rank.spans.all, step), expected);
    for (std::size_t i = 1; i < rank.spans.all.size(); ++i) {
      EXPECT_EQ(rank.spans.all[i].begin_ns, rank.spans.all[i - 1].end_ns);
    }
  }
}

TEST(PhaseTimeline, PublishesThePhaseOfTheDeviceWhileTheHostIsAhead) {
  int behind = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    SimulatedRank rank(seed);
    rank.rank_status.publish_in(rank.slot);
    rank.step(1);
    EXPECT_EQ(rank.rank_status.current().phase, Phase::reports);
    behind += rank.slot.phase == Phase::reports ? 0 : 1;
    rank.timeline.synchronize();
    EXPECT_EQ(rank.slot.phase, Phase::reports);
    rank.rank_status.enter(Phase::evaluation);
    EXPECT_EQ(rank.slot.phase, Phase::evaluation);
  }
  EXPECT_GT(behind, 0);
}

TEST(PhaseTimeline, PollsWithoutWaiting) {
  SimulatedRank rank(3);
  rank.rank_status.publish_in(rank.slot);
  rank.step(1);
  const auto before = rank.spans.all.size();
  rank.timeline.poll();
  EXPECT_EQ(rank.spans.all.size(), before);
  rank.stream->synchronize();
  rank.timeline.poll();
  EXPECT_EQ(rank.slot.phase, Phase::reports);
}

TEST(PhaseTimeline, LetsTheHostPublishPhasesWhereOperationsAreSynchronous) {
  MemoryBackend host;
  const auto stream = host.make_stream();
  RankStatus rank_status;
  StatusSlot slot;
  rank_status.publish_in(slot);
  PhaseTimeline timeline(host, *stream, rank_status);
  rank_status.begin_step(1, Phase::data);
  rank_status.enter(Phase::exchange);
  EXPECT_EQ(slot.phase, Phase::exchange);
}

}  // namespace
}  // namespace tutti
