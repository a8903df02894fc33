#include "run_start.hpp"

#include "tutti/nn/model_file.hpp"

#include "checkpoint_choice.hpp"
#include "option_table.hpp"
#include "preflight/agreement.hpp"
#include "resolve_options.hpp"
#include "run_data.hpp"
#include "run_record.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

std::optional<LoadedCheckpoint> find_checkpoint(World& world, RunConfig& config, const std::set<std::string>& given,
                                                Damaged damaged, const Log& log) {
  auto newest = CheckpointStore(config.out + "/checkpoints").newest(world, log, damaged);
  if (!newest) {
    log.note(fmt::format("--resume: {} holds no checkpoint; starting afresh", config.out));
    return newest;
  }
  std::string note;
  run_agreed(world, [&] {
    config = merge_for_resume(config, given, newest->state.configuration, newest->path);
    note = drop_stored_part_map(config, given, world.size());
  });
  if (!note.empty()) log.note(note);
  return newest;
}

}  // namespace

RunStart find_start(World& world, RunConfig& config, const std::set<std::string>& given, Damaged damaged,
                    Obstacles& obstacles, const Log& log) {
  RunStart start;
  if (config.resume && !config.out.empty()) {
    obstacles.attempt([&] { start.resumed = find_checkpoint(world, config, given, damaged, log); });
  }
  obstacles.attempt([&] {
    const bool takes_weights = !start.resumed && !config.init_from.empty();
    if (takes_weights) start.weights = load_named_checkpoint(world, config.init_from, log);
    run_agreed(world, [&] {
      if (start.resumed) {
        start.model = parse_model(start.resumed->state.model, "the checkpoint's model");
      } else if (takes_weights && !given.contains("model")) {
        start.model = model_of(*start.weights, config);
      } else {
        start.model = choose_model(config);
      }
    });
  });
  return start;
}

Assembly assemble_run(World& world, const RunConfig& config, RunStart& start, bool samples_files, Obstacles& obstacles,
                      const Log& log) {
  Assembly assembly = assemble(world, config,
                               {.checkpoint = start.resumed ? &start.resumed->state : nullptr,
                                .model = start.model ? &*start.model : nullptr,
                                .samples_files = samples_files},
                               obstacles, log);
  if (!assembly.data.train) return assembly;
  start.digests = digests_of(assembly.data);
  if (!start.resumed) return assembly;
  Findings warnings;
  obstacles.attempt([&] { warnings = refuse_other_data(*start.resumed, assembly.config, start.digests); });
  obstacles.add(warnings);
  return assembly;
}

void judge_run(World& world, const Assembly& assembly, const RunStart& start, Obstacles& obstacles) {
  if (assembly.network) {
    obstacles.add(judge_load(world, assembly));
    Findings of_weights;
    obstacles.attempt([&] {
      run_agreed(world, [&] {
        of_weights = judge_weights(start.weights, assembly.config, *assembly.network, assembly.data.train->info());
      });
    });
    obstacles.add(of_weights);
  }
  if (assembly.backend) {
    obstacles.add(judge_processors(world, assembly.config, processor_kinds(*assembly.backend, start.resumed)));
  }
}

}  // namespace tutti
