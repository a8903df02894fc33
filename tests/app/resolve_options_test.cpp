#include "tutti/base/error.hpp"

#include "processors.hpp"
#include "run_config.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

TEST(ResolveOptions, RefusesOptionsThatContradictEachOther) {
  EXPECT_NO_THROW(refuse_contradictions(RunConfig{}));
  RunConfig config;
  config.trainer.optimizer.kind = OptimizerKind::adamw;
  EXPECT_THROW(refuse_contradictions(config), Error) << "with momentum";
  config.trainer.optimizer.momentum = 0;
  EXPECT_NO_THROW(refuse_contradictions(config));
  config.trainer.learning_rate.schedule = Schedule::step;
  EXPECT_THROW(refuse_contradictions(config), Error) << "without --lr-period";
  config.trainer.learning_rate.period_epochs = {10};
  EXPECT_NO_THROW(refuse_contradictions(config));
  config.trainer.optimizer.clip_norm = -1;
  EXPECT_THROW(refuse_contradictions(config), Error);
}

TEST(ResolveOptions, RefusesAPartMapOfMorePartsThanThereMayBe) {
  EXPECT_EQ(parse_part_map("65535,1").parts_by_rank.size(), 2u);
  std::string many = "65536";
  for (int rank = 1; rank < 40'000; ++rank) many += ",65536";  // more than an int holds
  for (const std::string& text : {std::string("65536,1"), many}) EXPECT_THROW(parse_part_map(text), Error);
}

// As assemble() sets it.
RunConfig filled_in() {
  RunConfig config;
  config.exchange = Exchange::ring;
  return config;
}

TEST(ResolveOptions, TakesAPartMapByWordOrByHand) {
  EXPECT_TRUE(parse_part_map("auto").balanced);
  EXPECT_TRUE(parse_part_map("auto").parts_by_rank.empty());
  EXPECT_FALSE(parse_part_map("even").balanced);
  EXPECT_TRUE(parse_part_map("even").parts_by_rank.empty());
  RunConfig config = filled_in();
  config.trainer.part_map = parse_part_map("3,12,1");
  EXPECT_EQ(resolve_options(config, NetworkSpec{}).part_map.parts_by_rank, (std::vector{3, 12, 1}));
}

TEST(ResolveOptions, DropsAStoredPartMapOfAnotherNumberOfRanksWithANote) {
  const auto dropped = [](const char* map, const std::set<std::string>& given, int ranks) {
    RunConfig config;
    config.trainer.part_map = parse_part_map(map);
    config.texts.part_map = map;
    config.given = given;
    const std::string note = drop_stored_part_map(config, ranks);
    EXPECT_EQ(note.empty(), config.texts.part_map == map) << note;
    return !note.empty();
  };
  EXPECT_TRUE(dropped("3,3,2", {}, 2));
  EXPECT_FALSE(dropped("3,3,2", {}, 3));
  EXPECT_FALSE(dropped("3,3,2", {"part-map"}, 2)) << "a requested one is refused instead";
  EXPECT_FALSE(dropped("auto", {}, 2));
}

TEST(ResolveOptions, PassesTheOptimizersChoicesOn) {
  RunConfig config = filled_in();
  config.trainer.optimizer.kind = OptimizerKind::lars;
  config.trainer.optimizer.exempts_norms_and_biases = true;
  config.trainer.optimizer.clip_norm = 2;
  config.trainer.label_smoothing = 0.1;
  const TrainerOptions options = resolve_options(config, NetworkSpec{});
  EXPECT_EQ(options.optimizer.kind, OptimizerKind::lars);
  EXPECT_TRUE(options.optimizer.exempts_norms_and_biases);
  EXPECT_EQ(options.optimizer.clip_norm, 2);
  EXPECT_EQ(options.label_smoothing, 0.1);
}

TEST(ResolveOptions, PassesTheExchangeToTheTrainer) {
  RunConfig config = filled_in();
  EXPECT_EQ(resolve_options(config, NetworkSpec{}).exchange.owners(), Owners::all);
  config.exchange = Exchange::exact;
  EXPECT_EQ(resolve_options(config, NetworkSpec{}).exchange.kind, Exchange::exact);
  config.trainer.exchange.shard_optimizer = true;
  EXPECT_EQ(resolve_options(config, NetworkSpec{}).exchange.owners(), Owners::sharded);
}

TEST(ResolveOptions, SavesEachEpochOnlyWhereThereIsAFolder) {
  RunConfig config = filled_in();
  EXPECT_EQ(resolve_options(config, NetworkSpec{}).checkpoint_every_epochs, 0);
  config.output.folder = "runs/a";
  EXPECT_EQ(resolve_options(config, NetworkSpec{}).checkpoint_every_epochs, 1);
  config.output.checkpoint_every = parse_checkpoint_every("end");
  EXPECT_EQ(resolve_options(config, NetworkSpec{}).checkpoint_every_epochs, 0);
}

TEST(ResolveOptions, ReadsCheckpointIntervals) {
  EXPECT_EQ(parse_checkpoint_every("500").steps, 500);
  EXPECT_EQ(parse_checkpoint_every("500steps").steps, 500);
  EXPECT_EQ(parse_checkpoint_every("2epochs").epochs, 2);
  EXPECT_EQ(parse_checkpoint_every("600s").seconds, 600);
  EXPECT_EQ(parse_checkpoint_every("0.25s").seconds, 0.25);
  EXPECT_EQ(parse_checkpoint_every("600s").steps, 0);
  EXPECT_EQ(checkpoint_every_text(parse_checkpoint_every("")),
            "every epoch, and every 15 minutes within longer epochs");
  EXPECT_EQ(checkpoint_every_text(parse_checkpoint_every("1")), "every 1 step and at the end");
  EXPECT_EQ(checkpoint_every_text(parse_checkpoint_every("30s")), "every 30 seconds and at the end");
  EXPECT_EQ(checkpoint_every_text(parse_checkpoint_every("end")), "only at the end");
  for (const char* wrong : {"0", "-1", "x", "5 steps", "1h", "1.5", "1.5epochs", "0s", "-1s", "infs", "nans", "s"})
    EXPECT_THROW(parse_checkpoint_every(wrong), Error) << wrong;
}

TEST(ResolveOptions, ReadsTimeLimitsAsPeopleAndSlurmWriteThem) {
  EXPECT_EQ(parse_time_limit(""), 0);
  EXPECT_EQ(parse_time_limit("3600"), 3600);
  EXPECT_EQ(parse_time_limit("90s"), 90);
  EXPECT_EQ(parse_time_limit("90m"), 5400);
  EXPECT_EQ(parse_time_limit("2h"), 7200);
  EXPECT_EQ(parse_time_limit("1h30m"), 5400);
  EXPECT_EQ(parse_time_limit("1d2h3m4s"), 93784);
  EXPECT_EQ(parse_time_limit("01:02:03"), 3723);
  EXPECT_EQ(parse_time_limit("48:00:00"), 172800);
  EXPECT_EQ(parse_time_limit("1-12:00:00"), 129600);
  for (const char* wrong :
       {"0", "-5", "1.5h", "x", "1h30", "30m1h", "1h1h", "h", "10:00", "1:2:3:4", "00:60:00", "1:00:00s", "1-", "1-2",
        "-1-00:00:01", "00:00:00", "99999999999", "4000000000h", "1:-1:00"})
    EXPECT_THROW(parse_time_limit(wrong), Error) << wrong;
}

TEST(ResolveOptions, RefusesWhatNeedsAFolderWithoutOne) {
  const std::vector<std::pair<std::string, std::function<void(RunConfig&)>>> wanting{
      {"--resume", [](RunConfig& c) { c.output.resume = true; }},
      {"--checkpoint-every", [](RunConfig& c) { c.texts.checkpoint_every = "5"; }},
      {"--keep-best", [](RunConfig& c) { c.trainer.checkpoint_at_best = true; }},
      {"--on-save-failure stop", [](RunConfig& c) { c.output.on_save_failure = OnSaveFailure::stop; }},
      {"--time-limit", [](RunConfig& c) { c.texts.time_limit = "1h"; }}};
  EXPECT_NO_THROW(refuse_without_out(RunConfig{}));
  for (const auto& [option, ask] : wanting) {
    RunConfig config;
    ask(config);
    const Error error = thrown_by([&] { refuse_without_out(config); });
    EXPECT_EQ(error.source(), ErrorSource::usage);
    EXPECT_EQ(std::string(error.what()).find(option + " needs --out"), 0U) << error.what();
    config.output.folder = "runs/a";
    EXPECT_NO_THROW(refuse_without_out(config));
  }
}

TEST(ResolveOptions, RefusesWhatTheExchangeCannotDo) {
  struct Case {
    std::string remedy;
    Exchange exchange;
    std::function<void(TrainerOptions&)> ask;
  };
  const std::vector<Case> cases{
      {"--exchange ring", Exchange::exact, [](TrainerOptions& o) { o.exchange.wire = Wire::bf16; }},
      {"--exchange exact", Exchange::ring, [](TrainerOptions& o) { o.exchange.wire = Wire::int32; }},
      {"--exchange ring", Exchange::exact, [](TrainerOptions& o) { o.exchange.wire = Wire::fp32; }},
      {"--exchange exact", Exchange::ring, [](TrainerOptions& o) { o.safeguards.audit_every_steps = 5; }},
      {"--exchange exact", Exchange::central, [](TrainerOptions& o) { o.exchange.shard_optimizer = true; }}};
  for (const Case& one : cases) {
    RunConfig config;
    config.exchange = one.exchange;
    EXPECT_NO_THROW(resolve_parts(config, 2, 1));
    one.ask(config.trainer);
    EXPECT_THAT(thrown_by([&] { resolve_parts(config, 2, 1); }), reports(ErrorSource::usage, one.remedy)) << one.remedy;
  }
}

TEST(ResolveOptions, ChoosesTheTypeOfExactSumsByTheParts) {
  const auto wire_of = [](int parts) {
    RunConfig config;
    config.trainer.num_parts = parts;
    resolve_parts(config, 1, 1);
    return config.trainer.exchange.wire;
  };
  EXPECT_EQ(wire_of(0), Wire::fp32);
  EXPECT_EQ(wire_of(1024), Wire::int32);
  EXPECT_EQ(wire_of(1025), Wire::int64);
}

TEST(ResolveOptions, ReadsRankCounts) {
  EXPECT_EQ(parse_counts("ranks", "", 6), (std::vector<int>{1, 2, 4, 6}));
  EXPECT_EQ(parse_counts("ranks", "", 1), (std::vector<int>{1}));
  EXPECT_EQ(parse_counts("ranks", "1,3", 4), (std::vector<int>{1, 3}));
  for (const char* wrong : {"0", "5", "2,1", "1,,2", "1,", "a"})
    EXPECT_THROW(parse_counts("ranks", wrong, 4), Error) << wrong;
}

TEST(Cores, GiveReadersWhatComputeThreadsLeave) {
  const auto world = make_solo_world();
  const auto readers = [&](int usable) { return reader_threads_per_rank(*world, {.usable = usable}, 2); };
  EXPECT_EQ(readers(1), 1);
  EXPECT_EQ(readers(3), 1);
  EXPECT_EQ(readers(5), 3);
  EXPECT_EQ(readers(64), 4);
}

TEST(ResolveOptions, TakesTheModelsInitializerUnlessAnotherIsGiven) {
  RunConfig config = filled_in();
  NetworkSpec model;
  model.initializer = Initializer::normal;
  EXPECT_EQ(resolve_options(config, model).initializer, Initializer::normal);
  config.init = Initializer::kaiming;
  EXPECT_EQ(resolve_options(config, model).initializer, Initializer::kaiming);
}

}  // namespace
}  // namespace tutti
