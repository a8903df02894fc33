#include "eval_command.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/storage/whole_file.hpp"
#include "tutti/train/evaluation.hpp"

#include "abandon_at_end.hpp"
#include "assemble.hpp"
#include "checkpoint_choice.hpp"
#include "option_table.hpp"
#include "processors.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <span>
#include <string>

namespace tutti {
namespace {

// The checkpoint's own configuration but for where the data lie and what this call runs on.
RunConfig config_for(const Invocation& invocation, const LoadedCheckpoint& loaded) {
  const RunConfig& asked = invocation.run;
  RunConfig config;
  config.own = asked.own;
  std::set<std::string> read;
  read_config_text(loaded.state.configuration, loaded.path, config, read);
  const bool other_data = invocation.given.contains("data");
  const bool other_test_data = invocation.given.contains("test-data");
  if (other_data) config.data = asked.data;
  if (other_data || other_test_data) config.test_data = asked.test_data;
  if (other_test_data) config.validation_ratio = 0;
  config.device = asked.device;
  config.share_device = asked.share_device;
  config.search_plans = "off";  // each rank for itself, and once
  config.comm = asked.comm;
  config.quiet = asked.quiet;
  config.stall_timeout = asked.stall_timeout;
  config.exchange = "ring";
  config.shard_optimizer = false;
  constexpr std::int64_t kManyParts = 65536;  // an evaluation has none, and no number of ranks is too large for it
  config.parts = kManyParts;
  config.part_map = "even";
  return config;
}

const Dataset& chosen_set(const Assembly& assembly, const std::string& on) {
  if (on == "train") return *assembly.data.train;
  if (assembly.data.test) return *assembly.data.test;
  throw Error(ErrorSource::input, fmt::format("--data {} holds no test set: give --test-data, or --on train to "
                                              "evaluate on the training set",
                                              assembly.config.data))
      .on_all_ranks();
}

void report(World& world, const Invocation& invocation, const LoadedCheckpoint& loaded, const LossSums& sums) {
  const EvalRequest& request = invocation.eval;
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    fmt::print("{0} loss {1:.4f}, {0} acc {2:.4f}, {3} images\n", request.on, sums.mean_loss(), sums.accuracy(),
               sums.samples);
    std::fflush(stdout);
    if (invocation.json.empty()) return;
    const std::string json =
        nlohmann::ordered_json{
            {"checkpoint", loaded.path}, {"verified", loaded.verified}, {"step", loaded.state.progress.step},
            {"set", request.on},         {"loss", sums.mean_loss()},    {"accuracy", sums.accuracy()},
            {"images", sums.samples}}
            .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
        "\n";
    write_whole(invocation.json, std::as_bytes(std::span(json)));
  });
}

}  // namespace

ExitStatus eval_command(World& world, const Invocation& invocation, const EndRecord& record) {
  const Log log(world.rank(), world.host(), invocation.run.quiet);
  const LoadedCheckpoint loaded = load_named_checkpoint(world, invocation.eval.checkpoint, log);
  const TrainState& state = loaded.state;
  RunConfig config;
  run_agreed(world, [&] { config = config_for(invocation, loaded); });
  const Assembly assembly = assemble(world, config, &state, log);
  const Dataset& data = chosen_set(assembly, invocation.eval.on);
  const AbandonAtEnd abandoning(record.watch, *assembly.communicator);
  Whereabouts whereabouts;
  if (record.watch != nullptr) whereabouts.publish_in(record.watch->place_slot());
  LossSums sums;
  end_together(world, [&] {
    sums = evaluate({.backend = *assembly.backend,
                     .communicator = *assembly.communicator,
                     .network = *assembly.network,
                     .data = data,
                     .recipe = assembly.options.recipe,
                     .threads = assembly.options.threads,
                     .side_by_side = assembly.options.side_by_side,
                     .whereabouts = &whereabouts},
                    state);
    if (sums.not_finite == 0) return;
    throw Error(ErrorSource::not_finite,
                fmt::format("the loss of {} on {} is not finite", loaded.path, data.info().name))
        .on_all_ranks();
  });
  report(world, invocation, loaded, sums);
  return ExitStatus::done;
}

}  // namespace tutti
