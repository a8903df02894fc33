// Batch norm over the whole batch: any ranks with any shares of the parts have the same bits after every step.

#include "support/shared_folder.hpp"
#include "train/run_spec.hpp"

#include <utility>
#include <vector>

namespace tutti {
namespace {

// The last batch of an epoch has 3 samples, so that some ranks have none.
constexpr const char* kNormData = "synthetic:99x1x16x16:5";

RunSpec run_of(int parts, BatchNorm batch_norm = BatchNorm::global) {
  RunSpec spec = small_run(small_resnet(), {.kind = Exchange::exact});
  spec.options.num_parts = parts;
  spec.options.batch_norm = batch_norm;
  spec.options.learning_rate.base = 0.05;
  return spec;
}

TEST(GlobalBatchNorm, HasTheSameBitsOnAnyRanks) {
  const OwnedData data = open_small(kNormData);
  for (const int parts : {4, 7}) {
    RunSpec spec = run_of(parts);
    spec.options.batch_size = parts == 4 ? 16 : 19;
    expect_the_same(on_ranks(spec, {1, 2, 3, 4}), data.pair);
  }
}

TEST(GlobalBatchNorm, HasTheSameBitsWithAnyPartMapAndInBf16) {
  const OwnedData data = open_small(kNormData);
  RunSpec spec = run_of(8);
  spec.precision = Precision::bf16;
  std::vector<RunSpec> specs = on_ranks(spec, {1, 4, 4, 3});
  specs[1].options.part_map.parts_by_rank = {1, 5, 1, 1};
  specs[2].options.part_map.balanced = true;
  specs[2].helper_thread = true;
  specs[3].options.exchange.shard_optimizer = true;
  expect_the_same(specs, data.pair);
}

// Frozen norms use no sums, also where no layer has a backward pass. With one part of 4 empty, a rank takes part in the
// sums of the others.
TEST(GlobalBatchNorm, HasTheSameBitsWithFrozenNorms) {
  const OwnedData data = open_small(kNormData);
  RunSpec spec = run_of(4);
  spec.frozen = {"stem.norm"};
  for (const bool is_first : {false, true}) {
    if (is_first) spec.model.layers[0].frozen = {ParameterKind::weight, ParameterKind::bias};
    expect_the_same(on_ranks(spec, {1, 2, 4}), data.pair);
  }
}

TEST(GlobalBatchNorm, AbortsItsCollectivesWhenARankFails) {
  World& world = test_world();
  const OwnedData data = open_small(kNormData);
  const auto backend = make_cpu_backend();
  const auto communicator = make_mpi_communicator(world, {});
  const auto of_norms = make_mpi_library_communicator(world);
  const Network network(small_resnet(), data.pair.train->info().image, data.pair.train->info().classes);
  try {
    const Trainer trainer({.backend = *backend,
                           .communicator = *communicator,
                           .network = network,
                           .train = *data.pair.train,
                           .norm_communicator = of_norms.get()},
                          run_of(4).options, {});
    throw Error(ErrorSource::internal, "a rank fails");
  } catch (const Error&) {
    const auto stream = backend->make_stream();
    EXPECT_THROW(communicator->finish(*stream), Error);
    EXPECT_THROW(of_norms->finish(*stream), Error);
  }
}

TEST(GlobalBatchNorm, DiffersFromThatOfEachPart) {
  const OwnedData data = open_small(kNormData);
  const auto texts = reports_of({run_of(4), run_of(4, BatchNorm::part)}, data.pair);
  EXPECT_NE(lines_of(texts[0], "step 2:"), lines_of(texts[1], "step 2:"));
}

TEST(GlobalBatchNorm, RunsWithEveryExchange) {
  const OwnedData data = open_small(kNormData);
  for (const Exchange kind : {Exchange::ring, Exchange::sharded, Exchange::central}) {
    RunSpec spec = run_of(4);
    spec.options.exchange.kind = kind;
    const auto texts = reports_of(on_ranks(spec, {3, 3}), data.pair);
    EXPECT_NE(texts[0].find("\n40 steps, "), std::string::npos) << texts[0];
    EXPECT_EQ(first_difference(texts[0], texts[1]), "");
  }
}

TEST(GlobalBatchNorm, ResumesOnOtherRanksToTheSameBits) {
  const SharedFolder folder;
  const OwnedData data = open_small(kNormData);
  RunSpec spec = run_of(8);
  spec.ranks = 3;
  const std::string uninterrupted = reports_of({spec}, data.pair)[0];
  std::string resumed;
  spec.to = folder.path();
  for (const auto& [ranks, steps] : {std::pair(4, 17), std::pair(2, 29), std::pair(1, 40)}) {
    spec.ranks = ranks;
    spec.options.steps = steps;
    resumed += lines_of(reports_of({spec}, data.pair)[0], "step ");
    spec.from = fmt::format("{}/step-{:08}.h5", folder.path(), steps);
  }
  EXPECT_EQ(first_difference(resumed, lines_of(uninterrupted, "step ")), "");
}

}  // namespace
}  // namespace tutti
