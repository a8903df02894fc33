#pragma once
// A training whose layers compute wrong values on some ranks, and whose parts are audited.

#include "tutti/base/error.hpp"
#include "tutti/watch/rehearsal.hpp"

#include "support/mpi_world.hpp"
#include "train/part_audit.hpp"
#include "train/training_run.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// A stem, dropout and a residual block.
inline NetworkSpec audited_network() {
  return parse_model(R"(
name = "audited"
init = "kaiming"
layer = [
  {name = "stem.conv", type = "conv2d", channels = 6, kernel = 3, padding = 1},
  {name = "stem.norm", type = "batch-norm", relu = true},
  {name = "block.conv", type = "conv2d", channels = 6, kernel = 3, padding = 1},
  {name = "block.norm", type = "batch-norm", add = true, relu = true, residual = "stem.norm"},
  {name = "pool", type = "max-pool2d", kernel = 2},
  {name = "dense", type = "linear", units = 12, relu = true},
  {name = "drop", type = "dropout", rate = 0.3},
  {name = "head", type = "linear", units = "classes"},
]
)",
                     "audited_network");
}

struct AuditedRun {
  NetworkSpec model = audited_network();
  std::string data = "synthetic:96x1x8x8:5";
  Precision precision = Precision::fp32;
  TrainerOptions options{};
  std::vector<std::string> devices{};  // as in TrainerContext

  AuditedRun() {
    options.batch_size = 16;
    options.num_parts = 8;
    options.exchange.kind = Exchange::exact;
    options.epochs = 1000;
    options.steps = 12;
    options.last_batch = LastBatch::discard;
    options.learning_rate.base = 0.02;
    options.test_every_epochs = 0;
    options.safeguards.audit_every_steps = 1;
  }
};

// What one rank has seen.
struct AuditedOutcome final : Recorder {
  void on_wrong_part(const WrongPartReport& report) override { found = report; }

  std::optional<WrongPartReport> found;
  std::string not_finite;  // why the run ended in a step that was not audited
  std::int64_t steps_done = 0;
};

// Collective over the world.
inline AuditedOutcome outcome_of(World& world, const AuditedRun& run, const std::vector<Fault>& faults) {
  const auto backend = make_cpu_backend(run.precision);
  const auto communicator = make_mpi_communicator(world, {});
  const auto norm_communicator = make_mpi_library_communicator(world);
  const OwnedData data = open_small(run.data);
  const Network network(run.model, data.pair.train->info().image, data.pair.train->info().classes);
  RankStatus rank_status;
  FaultInjector injector(Log(world.rank(), "host", true));
  const auto rehearsed = injector.wrap(*backend);
  TrainerContext context{.backend = faults.empty() ? *backend : *rehearsed,
                         .communicator = *communicator,
                         .network = network,
                         .train = *data.pair.train,
                         .test = data.pair.test.get(),
                         .rank_status = &rank_status,
                         .norm_communicator = norm_communicator.get(),
                         .devices = run.devices};
  for (int rank = 0; rank < world.size(); ++rank) context.hosts.push_back(fmt::format("n{}", rank));
  AuditedOutcome outcome;
  Trainer trainer(context, run.options, {});
  rank_status.add(injector);
  injector.begin(faults, {});
  try {
    trainer.run(outcome);
  } catch (const Error& error) {
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks) << error.what();
    EXPECT_EQ(error.exit_status(), outcome.found ? ExitStatus::diverged : ExitStatus::not_finite) << error.what();
    if (!outcome.found) outcome.not_finite = error.what();
  }
  outcome.steps_done = trainer.steps_done();
  return outcome;
}

// Counted from 1, of a run without short batches.
inline AuditDraw draw_of(const AuditedRun& run, int ranks, std::int64_t step) {
  return draw_audit(run.options.seed, step - 1, run.options.batch_size,
                    PartMap::chosen(run.options.part_map.parts_by_rank, run.options.num_parts, ranks), run.devices);
}

inline bool computes(const AuditDraw& draw, int rank) { return draw.owner == rank || draw.auditor == rank; }

inline Fault wrong(int rank, std::int64_t first_step, std::int64_t last_step, const std::string& layer, Phase pass,
                   const WrongResult& result = {}) {
  Fault fault{.kind = FaultKind::wrong, .rank = rank, .first_step = first_step, .last_step = last_step, .phase = pass};
  fault.wrong = result;
  fault.wrong.layer = layer;
  return fault;
}

}  // namespace tutti
