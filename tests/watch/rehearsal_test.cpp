#include "tutti/watch/rehearsal.hpp"

#include "tutti/comm/communicator.hpp"

#include "comm/summed_values.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

// Rank 1 with one fault, stepped as a run does it.
class RehearsedRank {
 public:
  explicit RehearsedRank(Fault fault) {
    fault.rank = 1;
    communicator_ = injector_.wrap(make_solo_communicator());
    rank_status_.add(injector_);
    injector_.begin({fault}, [this](const BitFlip&) { flipped_in.push_back(rank_status_.current()); });
  }

  void step(std::int64_t number) {
    rank_status_.begin_step(number, Phase::data);
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::exchange, Phase::backward, Phase::exchange,
                              Phase::waiting, Phase::update, Phase::waiting, Phase::update, Phase::reports}) {
      rank_status_.enter(phase);
    }
  }
  std::int64_t milliseconds_of_step(std::int64_t number) {
    const std::int64_t begin = now_ns();
    step(number);
    return (now_ns() - begin) / 1'000'000;
  }
  void enter(Phase phase) { rank_status_.enter(phase); }
  Communicator& communicator() { return *communicator_; }
  std::size_t untriggered() const { return injector_.untriggered().size(); }

  std::vector<StepPhase> flipped_in;

 private:
  FaultInjector injector_{Log(1, "host", true)};
  std::unique_ptr<Communicator> communicator_;
  RankStatus rank_status_;
};

using FaultInjectorDeathTest = testing::Test;

TEST(FaultInjectorDeathTest, KillsItsRankInThatPhaseOfThatStepAndReportsItBefore) {
  RehearsedRank rank({.kind = FaultKind::kill, .first_step = 2, .last_step = 2, .phase = Phase::backward});
  rank.step(1);
  EXPECT_EXIT(rank.step(2), testing::KilledBySignal(SIGKILL),
              "rank 1 host. warning: rehearsal \\(step 2\\): rank 1 is killed at step 2 in backward");
  EXPECT_EQ(rank.untriggered(), 1u);
}

TEST(FaultInjectorDeathTest, KillsBeforeTheFirstStep) {
  EXPECT_EXIT(RehearsedRank rank({.kind = FaultKind::kill, .phase = Phase::starting}), testing::KilledBySignal(SIGKILL),
              "in starting");
}

TEST(FaultInjectorDeathTest, KillsInTheFirstEvaluationFromThatStepOn) {
  RehearsedRank rank({.kind = FaultKind::kill, .first_step = 2, .last_step = 2, .phase = Phase::evaluation});
  rank.step(1);
  rank.enter(Phase::evaluation);
  rank.step(2);
  rank.step(3);
  EXPECT_EXIT(rank.enter(Phase::evaluation), testing::KilledBySignal(SIGKILL), "");
}

TEST(FaultInjector, DelaysOnceInEachStepOfItsRange) {
  RehearsedRank rank(
      {.kind = FaultKind::delay, .first_step = 2, .last_step = 3, .phase = Phase::exchange, .seconds = 0.2});
  EXPECT_LT(rank.milliseconds_of_step(1), 200);
  for (const int step : {2, 3}) {
    const std::int64_t taken = rank.milliseconds_of_step(step);
    EXPECT_TRUE(taken >= 200 && taken < 400) << taken;
  }
  EXPECT_LT(rank.milliseconds_of_step(4), 200);
  EXPECT_LT(rank.milliseconds_of_step(2), 200) << "a repeated step is not delayed again";
  EXPECT_EQ(rank.untriggered(), 0u);
}

TEST(FaultInjector, FlipsGradientsBeforeTheUpdateAndTheRestAtTheStepsEnd) {
  for (const auto& [of, phase] : {std::pair("gradients", Phase::update), std::pair("weights", Phase::reports)}) {
    RehearsedRank rank({.kind = FaultKind::flip, .first_step = 2, .last_step = 2, .flip = {.block = of}});
    for (const int step : {1, 2, 3}) rank.step(step);
    ASSERT_EQ(rank.flipped_in.size(), 1u);
    EXPECT_EQ(rank.flipped_in.front().step, 2);
    EXPECT_EQ(rank.flipped_in.front().phase, phase);
  }
}

class Collectives : public testing::Test {
 protected:
  void sum(RehearsedRank& rank) { rank.communicator().all_reduce(values_, stream_); }

  std::vector<float> numbers_ = std::vector<float>(250);  // 8,000 bits
  Tensor values_{numbers_.data(), Shape{250}};
  IdleStream stream_;
};
using CollectivesDeathTest = Collectives;

TEST_F(CollectivesDeathTest, WithADroppedOneNeverEnd) {
  RehearsedRank rank({.kind = FaultKind::drop_bucket, .first_step = 2, .last_step = 2, .bucket = 1});
  const auto run_step = [&](int step) {
    rank.step(step);
    for (int i = 0; i < 3; ++i) sum(rank);
    rank.communicator().finish(stream_);
  };
  run_step(1);
  EXPECT_EXIT(::alarm(1); run_step(2), testing::KilledBySignal(SIGALRM), "drops bucket 1 of step 2");
}

TEST_F(Collectives, TakeAsLongAsASlowLinkSendsTheirBytes) {
  RehearsedRank rank({.kind = FaultKind::slow_link, .first_step = 2, .last_step = 2, .mbps = 0.1});
  const auto milliseconds = [&](int step) {
    rank.step(step);
    const std::int64_t begin = now_ns();
    sum(rank);
    sum(rank);
    EXPECT_EQ(rank.communicator().progress(), step == 2);
    rank.communicator().finish(stream_);
    return (now_ns() - begin) / 1'000'000;
  };
  EXPECT_LT(milliseconds(1), 80);
  EXPECT_GE(milliseconds(2), 160);
  EXPECT_LT(milliseconds(3), 80);
}

}  // namespace
}  // namespace tutti::test
