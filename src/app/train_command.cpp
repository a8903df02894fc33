#include "train_command.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/storage/whole_file.hpp"

#include "assemble.hpp"
#include "option_table.hpp"
#include "plan_choices.hpp"
#include "processors.hpp"
#include "resolve_options.hpp"
#include "run_record.hpp"
#include "run_reporter.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>

namespace tutti {
namespace {

void prepare_folder(World& world, const RunConfig& config, const CheckpointStore& store) {
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    std::error_code failure;
    std::filesystem::create_directories(store.folder(), failure);
    if (failure) {
      throw Error(ErrorSource::save, fmt::format("--out {}: cannot make {}: {}; choose a folder that can be written",
                                                 config.out, store.folder(), failure.message()));
    }
    if (!config.resume && store.holds_any()) {
      throw Error(ErrorSource::input,
                  fmt::format("--out {} holds checkpoints of an earlier run: add --resume to go on with it, or choose "
                              "another folder",
                              config.out));
    }
    std::filesystem::remove(std::filesystem::path(config.out) / "exit.json", failure);
  });
}

std::optional<LoadedCheckpoint> find_checkpoint(World& world, const RunConfig& config, const CheckpointStore& store,
                                                const Log& log) {
  if (!config.resume) return std::nullopt;
  auto newest = store.newest(world, log);
  if (!newest) log.note(fmt::format("--resume: {} holds no checkpoint; starting afresh", config.out));
  return newest;
}

void refuse_other_data(const LoadedCheckpoint& resumed, const Assembly& assembly) {
  if (resumed.state.data_digest == assembly.data_digest) return;
  throw Error(
      ErrorSource::input,
      fmt::format("--data {} has digest {}, but the checkpoint {} was trained on digest {}: give the data of the "
                  "run",
                  assembly.config.data, digest_text(assembly.data_digest), resumed.path,
                  digest_text(resumed.state.data_digest)))
      .on_all_ranks();
}

void save_resolved_options(World& world, const RunConfig& config) {
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    const std::string text = config_text(config);
    write_whole(config.out + "/config.toml", std::as_bytes(std::span(text)));
  });
}

void tell_end(const Trainer& trainer, std::uint64_t digest, const RunConfig& config, const Log& log) {
  log.note(fmt::format("done after {} steps, weights {}", trainer.steps_done(), digest_text(digest)));
  if (const std::int64_t left = trainer.samples_left_over(); left > 0) {
    log.note(
        fmt::format("{} samples of the last epoch were dealt to no step (--last-batch {})", left, config.last_batch));
  }
}

ExitStatus train(World& world, const Assembly& assembly, const std::optional<LoadedCheckpoint>& resumed,
                 const CheckpointStore* store, const Invocation& invocation, const Log& log) {
  const RunConfig& config = assembly.config;
  const RunFacts facts{.configuration = config_text(config),
                       .model = model_text(assembly.network->spec()),
                       .versions = versions_text(assembly, world),
                       .data_digest = assembly.data_digest};
  std::optional<Trainer> trainer;
  build_alike(world, config, *assembly.backend, [&] {
    trainer.emplace(assembly.parts(), assembly.options, facts);
    if (resumed) trainer->restore(resumed->state);
  });
  tell_start(assembly, world, *trainer, log);
  if (resumed) {
    log.note(fmt::format("going on from {}: {} of {} steps done", resumed->path, trainer->steps_done(),
                         trainer->planned_steps()));
  }
  if (trainer->steps_done() >= trainer->planned_steps()) {
    log.note(fmt::format("nothing left to do: all {} steps are done; --epochs or --steps makes the run longer",
                         trainer->planned_steps()));
  }
  if (store != nullptr) save_resolved_options(world, config);
  std::optional<RunReporter> reporter;
  run_agreed(world, [&] { reporter.emplace(world, config, store); });
  reporter->start(run_record(assembly, world, invocation.words));
  end_together(world, [&] { trainer->run(*reporter); });
  tell_end(*trainer, trainer->weights_digest(), config, log);
  return ExitStatus::done;
}

}  // namespace

ExitStatus train_command(World& world, const Invocation& invocation, FailureRecord& record) {
  RunConfig config = invocation.run;
  const Log log(world.rank(), world.host(), config.quiet);
  run_agreed(world, [&] { refuse_without_out(config); });

  const CheckpointStore store(config.out + "/checkpoints");
  const bool keeps = !config.out.empty() && !config.dry_run;
  if (keeps) {
    prepare_folder(world, config, store);
    record.folder = config.out;
  }
  const std::optional<LoadedCheckpoint> resumed = find_checkpoint(world, config, store, log);
  if (resumed) {
    run_agreed(world, [&] {
      config = merge_for_resume(config, invocation.given, resumed->state.configuration, resumed->path);
    });
  }

  const Assembly assembly = assemble(world, config, resumed ? &resumed->state : nullptr, log);
  if (resumed) refuse_other_data(*resumed, assembly);
  if (config.dry_run) {
    if (world.rank() == 0) fmt::print("{}", config_text(assembly.config));
    return ExitStatus::done;
  }
  return train(world, assembly, resumed, keeps ? &store : nullptr, invocation, log);
}

}  // namespace tutti
