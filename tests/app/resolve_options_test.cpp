#include "resolve_options.hpp"

#include "tutti/base/error.hpp"

#include "cores.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace tutti {
namespace {

TEST(ResolveOptions, RefusesWordsAndNumbersThatMeanNothing) {
  const std::vector<std::function<void(RunConfig&)>> mistakes{
      [](RunConfig& c) { c.device = "tpu"; },
      [](RunConfig& c) { c.precision = "fp8"; },
      [](RunConfig& c) { c.comm = "carrier"; },
      [](RunConfig& c) { c.exchange = "nearly"; },
      [](RunConfig& c) { c.last_batch = "drop"; },
      [](RunConfig& c) { c.shuffle = "yes"; },
      [](RunConfig& c) { c.augment = "flip"; },
      [](RunConfig& c) { c.image_size = -1; },
      [](RunConfig& c) { c.schedule = "linear"; },
      [](RunConfig& c) { c.batch_size = 0; },
      [](RunConfig& c) { c.epochs = 0; },
      [](RunConfig& c) { c.steps = -1; },
      [](RunConfig& c) { c.parts = -1; },
      [](RunConfig& c) { c.part_map = ""; },
      [](RunConfig& c) { c.part_map = "3,"; },
      [](RunConfig& c) { c.part_map = "3,0"; },
      [](RunConfig& c) { c.part_map = "3;3"; },
      [](RunConfig& c) { c.in_flight = 3; },
      [](RunConfig& c) { c.bucket_mib = -1; },
      [](RunConfig& c) { c.lr_period = "soon"; },
      [](RunConfig& c) { c.checkpoint_every = "1hour"; },
      [](RunConfig& c) { c.progress = "sometimes"; },
      [](RunConfig& c) { c.init = "zeros"; },
      [](RunConfig& c) { c.optimizer = "adam"; },
      [](RunConfig& c) { c.optimizer = "adamw"; },  // with momentum
      [](RunConfig& c) { c.no_decay = "biases"; },
      [](RunConfig& c) { c.label_smoothing = 1; },
  };
  EXPECT_NO_THROW(refuse_unknown_words(RunConfig{}));
  for (std::size_t i = 0; i < mistakes.size(); ++i) {
    RunConfig config;
    mistakes[i](config);
    EXPECT_THROW(refuse_unknown_words(config), Error) << "mistake " << i;
  }
}

// As assemble() fills it in.
RunConfig filled_in() {
  RunConfig config;
  config.exchange = "ring";
  return config;
}

TEST(ResolveOptions, TakesAPartMapByWordOrByHand) {
  EXPECT_TRUE(parse_part_map("auto").measured);
  EXPECT_TRUE(parse_part_map("auto").parts_by_rank.empty());
  EXPECT_FALSE(parse_part_map("even").measured);
  EXPECT_TRUE(parse_part_map("even").parts_by_rank.empty());
  RunConfig config = filled_in();
  config.part_map = "3,12,1";
  EXPECT_EQ(resolve_options(config, NetworkSpec{}).part_map.parts_by_rank, (std::vector{3, 12, 1}));
}

TEST(ResolveOptions, PassesTheOptimizersChoicesOn) {
  RunConfig config = filled_in();
  config.optimizer = "lars";
  config.no_decay = "norms-biases";
  config.clip_norm = 2;
  config.label_smoothing = 0.1;
  const TrainerOptions options = resolve_options(config, NetworkSpec{});
  EXPECT_EQ(options.optimizer.kind, "lars");
  EXPECT_TRUE(options.optimizer.spares_norms_and_biases);
  EXPECT_EQ(options.optimizer.clip_norm, 2);
  EXPECT_EQ(options.label_smoothing, 0.1);
  config.clip_norm = -1;
  EXPECT_THROW(resolve_options(config, NetworkSpec{}), Error);
}

TEST(ResolveOptions, TellsTheTrainerHowGradientsMeet) {
  RunConfig config = filled_in();
  EXPECT_EQ(resolve_options(config, NetworkSpec{}).exchange.owners(), Owners::everyone);
  config.exchange = "exact";
  EXPECT_EQ(resolve_options(config, NetworkSpec{}).exchange.kind, Exchange::exact);
  config.shard_optimizer = true;
  EXPECT_EQ(resolve_options(config, NetworkSpec{}).exchange.owners(), Owners::shares);
}

TEST(ResolveOptions, ReadsCheckpointIntervals) {
  EXPECT_EQ(parse_checkpoint_every("500").steps, 500);
  EXPECT_EQ(parse_checkpoint_every("500steps").steps, 500);
  EXPECT_EQ(parse_checkpoint_every("2epochs").epochs, 2);
  for (const char* wrong : {"0", "-1", "x", "5 steps", "1h"})
    EXPECT_THROW(parse_checkpoint_every(wrong), Error) << wrong;
}

TEST(ResolveOptions, ReadsRankCounts) {
  EXPECT_EQ(parse_rank_counts("", 6), (std::vector<int>{1, 2, 4, 6}));
  EXPECT_EQ(parse_rank_counts("", 1), (std::vector<int>{1}));
  EXPECT_EQ(parse_rank_counts("1,3", 4), (std::vector<int>{1, 3}));
  for (const char* wrong : {"0", "5", "2,1", "1,,2", "1,", "a"})
    EXPECT_THROW(parse_rank_counts(wrong, 4), Error) << wrong;
}

TEST(Cores, GiveReadersWhatTheComputeLeavesOver) {
  const auto world = make_solo_world();
  const auto readers = [&](int usable) { return budget_readers(*world, {.usable = usable}, 2); };
  EXPECT_EQ(readers(1), 1);
  EXPECT_EQ(readers(3), 1);
  EXPECT_EQ(readers(5), 3);
  EXPECT_EQ(readers(64), 4);
}

TEST(ResolveOptions, TakesTheModelsOwnInitialiserUnlessAsked) {
  RunConfig config = filled_in();
  NetworkSpec model;
  model.initializer = Initializer::normal;
  EXPECT_EQ(resolve_options(config, model).initializer, Initializer::normal);
  config.init = "kaiming";
  EXPECT_EQ(resolve_options(config, model).initializer, Initializer::kaiming);
}

}  // namespace
}  // namespace tutti
