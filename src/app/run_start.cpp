#include "run_start.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/checkpoint_writer.hpp"
#include "tutti/train/lr_schedule.hpp"
#include "tutti/train/replica_state.hpp"

#include "checkpoint_choice.hpp"
#include "kept_states.hpp"
#include "option_table.hpp"
#include "output.hpp"
#include "preflight/host.hpp"
#include "preflight/options.hpp"
#include "run_config.hpp"
#include "run_folder.hpp"
#include "state_dicts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

namespace tutti {
namespace {

// Compares the digests of all files if all were read both times, else those of the same sample of files.
void refuse_other_files(const std::string& what, const std::string& path, const std::optional<FileContents>& then,
                        std::optional<FileContents>& now) {
  if (!then || !now) return;
  const bool by_all = then->whole && now->whole;
  const bool comparable = by_all || then->sampled_files == now->sampled_files;
  const std::uint64_t before = by_all ? *then->whole : then->sample_digest;
  const std::uint64_t found = by_all ? *now->whole : now->sample_digest;
  if (comparable && before != found) {
    throw Error(ErrorSource::input,
                fmt::format("{} have changed since the checkpoint {} was saved, though their names and sizes are the "
                            "same ({}: digest {} instead of {}): give the data of the run",
                            what, path, by_all ? "all files read" : fmt::format("{} files read", now->sampled_files),
                            digest_text(found), digest_text(before)))
        .on_all_ranks();
  }
  if (comparable && !now->whole) now->whole = then->whole;
}

bool chooses_training(RunConfig config) {
  return std::ranges::any_of(run_options(config), [&](const Option& option) {
    return (option.use == OptionUse::fixed || option.use == OptionUse::data_source) &&
           config.given.contains(option.name);
  });
}

// For a run that --resume starts, since the folder has no checkpoint. If no options of a training are given, they are
// those of the run that ended before its first checkpoint.
void adopt_options_of_unsaved_run(World& world, RunConfig& config, const Log& log) {
  const std::string path = options_file(config.output.folder);
  std::string text;
  on_rank_0(world, [&] {
    if (chooses_training(config) || !std::filesystem::exists(path)) return;
    text = read_file_text(path);
  });
  text = broadcast_text(world, text, 0);
  if (text.empty())
    return log.info(fmt::format("--resume: {} holds no checkpoint; starting a new run", config.output.folder));
  run_or_throw_on_all(world, [&] {
    const std::set<std::string> given = config.given;
    config = read_config_text(text, path, config);
    config.given = given;
    config.is_adopted = true;
  });
  log.info(fmt::format("--resume: {} holds no checkpoint; starting afresh with the options in {}", config.output.folder,
                       path));
}

// Throws an input error that names the first layer in which the model file of --model differs from the checkpoint's
// network, for example because it was edited. The file may have been removed.
void refuse_other_network(const RunConfig& config, const NetworkSpec& stored, const std::string& checkpoint) {
  const bool is_asked_for = config.given.contains("model") && is_model_file(config.model);
  if (!is_asked_for || !file_exists(config.model)) return;
  NetworkSpec asked = read_model_file(config.model);
  asked.name = stored.name;
  if (asked == stored) return;
  const auto [layer, of_checkpoint] = std::ranges::mismatch(asked.layers, stored.layers);
  std::string what = "init";
  if (of_checkpoint != stored.layers.end()) what = fmt::format("layer '{}'", of_checkpoint->name);
  if (layer != asked.layers.end()) what = fmt::format("layer '{}'", layer->name);
  throw Error(ErrorSource::input,
              fmt::format("--model {} differs from the network of the checkpoint {} in {}: leave the option out to "
                          "continue with that network, or start a new run with these weights: --init-from {} and "
                          "another --out",
                          config.model, checkpoint, what, checkpoint));
}

// How to make images as large as those that the weights were trained on; empty if they are, or if that is not known.
std::string resizing_text(const LoadedCheckpoint& weights, const Shape& trained_on, const Shape& image) {
  const bool same_size = trained_on[1] == image[1] && trained_on[2] == image[2];
  if (same_size || is_of_state_dict(weights)) return {};  // which only assumes a size
  return fmt::format("the images are {} x {} here, and {} on {} x {}: resize them with --image-size {}", image[1],
                     image[2], training_text(weights), trained_on[1], trained_on[2], trained_on[1]);
}

// Throws an input error for weights of another network.
void refuse_other_weights(const LoadedCheckpoint& weights, const RunConfig& config, const Network& network) {
  try {
    static_cast<void>(except_head(network.layout(), weights.state, config.new_head));
  } catch (const Error& error) {
    const auto trained = trained_on(weights);
    const Shape image = network.sample();
    if (!trained) throw;
    if (trained->image[0] != image[0]) {
      throw Error(
          ErrorSource::input,
          fmt::format(
              "--init-from {}: the images have {}, the checkpoint's had {}; give images with the same number ({})",
              weights.path, plural(image[0], "channel"), trained->image[0], error.what()));
    }
    const std::string resizing = resizing_text(weights, trained->image, image);
    if (resizing.empty()) throw;
    throw Error(ErrorSource::input, fmt::format("--init-from {}: {} ({})", weights.path, resizing, error.what()));
  }
}

// Warns if the images or classes of this run differ from those that the initial weights were trained on. Throws an
// input error if they are those of another network.
Findings check_weights(const LoadedCheckpoint& weights, const RunConfig& config, const Network& network,
                       const DatasetInfo& data) {
  refuse_other_weights(weights, config, network);
  Findings findings;
  const RunConfig theirs = read_config_text(weights.state.configuration, weights.path);
  if (theirs.recipe.normalize != config.recipe.normalize) {
    findings.warn("--normalize is {} here, and {} with {}: unless you want that, give --normalize {}",
                  config.recipe.normalize, training_text(weights), theirs.recipe.normalize, theirs.recipe.normalize);
  }
  const auto trained = trained_on(weights);
  if (!trained) return findings;
  const Shape image = network.sample();
  if (const std::string resizing = resizing_text(weights, trained->image, image); !resizing.empty()) {
    findings.warn("{}", resizing);
  }
  if (config.new_head) return findings;
  // With another number of classes, the last layer is newly initialized.
  const auto& before = trained->class_names;
  const auto& now = data.class_names;
  if (trained->classes != network.classes() || before.size() != now.size()) return findings;
  const auto [was, is] = std::ranges::mismatch(before, now);
  if (was != before.end()) {
    findings.warn(
        "class {} is '{}' here, and was '{}' where the weights of {} were trained: the last layer starts with the "
        "weights of other classes; --new-head newly initializes it",
        is - now.begin(), *is, *was, weights.path);
  }
  return findings;
}

// Whether --model names another network than that of these weights.
bool chooses_model(const RunConfig& config, const LoadedCheckpoint& weights) {
  if (!config.is_adopted) return config.given.contains("model");
  return config.model != read_config_text(weights.state.configuration, weights.path).model;
}

}  // namespace

void refuse_absent_run(World& world, const RunConfig& config) {
  on_rank_0(world, [&] {
    const bool is_there =
        file_exists(options_file(config.output.folder)) || file_exists(checkpoints_folder(config.output.folder));
    if (!config.output.resume || config.output.folder.empty() || is_there || chooses_training(config)) return;
    throw Error(ErrorSource::usage, fmt::format("--resume: there is no run in '{}': check the path; to start a run "
                                                "there, give its options, such as --data, --model or --config",
                                                config.output.folder));
  });
}

std::optional<LoadedCheckpoint> find_resumed(World& world, RunConfig& config, DamagedPolicy damaged, const Log& log) {
  if (!config.output.resume || config.output.folder.empty()) return std::nullopt;
  std::optional<LoadedCheckpoint> newest;
  std::optional<Error> none_intact;  // what the memory of a host may make good
  try {
    newest = CheckpointStore(checkpoints_folder(config.output.folder)).newest(world, log, damaged);
  } catch (const Error& error) {
    if (error.source() != ErrorSource::checkpoint) throw;
    none_intact = error;
  }
  const KeptStates states(world, config.output.folder);
  if (auto kept = states.newest(world, newest ? newest->state.progress.step : 0, log)) newest = std::move(kept);
  if (!newest && none_intact) throw Error(*none_intact);
  if (!newest) {
    adopt_options_of_unsaved_run(world, config, log);
    return newest;
  }
  std::string note;
  run_or_throw_on_all(world, [&] {
    config = merge_for_resume(config, newest->state.configuration, newest->path);
    note = drop_stored_part_map(config, world.size());
  });
  if (!note.empty()) log.info(note);
  return newest;
}

RunStart make_start(World& world, RunConfig& config, std::optional<LoadedCheckpoint> resumed, const Log& log) {
  RunStart start{.model = {}, .resumed = std::move(resumed), .weights = {}};
  if (!start.resumed && !config.init_from.empty()) {
    start.weights = load_initial_weights(world, config.init_from, log);
    use_averages(start.weights->state);
  }
  run_or_throw_on_all(world, [&] {
    if (start.resumed) {
      start.model = parse_model(start.resumed->state.model, "the checkpoint's model");
      refuse_other_network(config, start.model, start.resumed->path);
    } else if (start.weights && !chooses_model(config, *start.weights)) {
      start.model = model_of(*start.weights, config);
    } else {
      start.model = choose_model(config);
    }
  });
  return start;
}

DataRequest data_request_of(const RunConfig& config, const std::optional<LoadedCheckpoint>& resumed) {
  DataRequest request = config.data;
  if (!resumed) return request;
  request.allow_non_utf8_names = true;
  request.from_checkpoint =
      read_config_text(resumed->state.configuration, "the checkpoint").data.train == config.data.train;
  return request;
}

Sources sources_of(const RunStart& start) {
  return {.model = start.model, .checkpoint = start.resumed ? &start.resumed->state : nullptr};
}

Findings refuse_other_data(const LoadedCheckpoint& resumed, const RunConfig& config, DataDigests& digests) {
  const auto refuse = [&](const std::string& what, std::uint64_t found, const char* verb, std::uint64_t before) {
    throw Error(ErrorSource::input,
                fmt::format("{} has digest {}, but the checkpoint {} was {} digest {}: give the data of the run", what,
                            digest_text(found), resumed.path, verb, digest_text(before)))
        .on_all_ranks();
  };
  const std::string train = "--data " + config.data.train;
  if (resumed.state.data_digest != digests.train) {
    refuse(train, digests.train, "trained on", resumed.state.data_digest);
  }
  const auto stored = stored_digests(resumed);
  if (!stored) return {};
  Findings warnings;
  const std::string test = "the test set of " + (config.data.test.empty() ? train : "--test-data " + config.data.test);
  if (stored->test && digests.test && *stored->test != *digests.test) {
    refuse(test, *digests.test, "evaluated on", *stored->test);
  }
  const auto& files = stored->train_files;
  if (config.data.verification == Verification::whole && files && !files->whole && digests.train_files) {
    warnings.warn(
        "--verify-data has decoded all images, but the checkpoint has the digest of only {} of them: changes in the "
        "others cannot be found this time",
        files->sampled_files);
  }
  refuse_other_files("the training images of " + train, resumed.path, stored->train_files, digests.train_files);
  refuse_other_files("the images of " + test, resumed.path, stored->test_files, digests.test_files);
  if (stored->test.has_value() != digests.test.has_value()) {
    warnings.warn("the run had {} test set up to the checkpoint {}, and has {} now", stored->test ? "a" : "no",
                  resumed.path, digests.test ? "one" : "none");
  }
  return warnings;
}

RunNeeds check_needs(World& world, const PreparedRun& run, std::optional<std::int64_t> device_free) {
  RunNeeds needs;
  if (!run.config.output.folder.empty()) needs.shard = file_shard(world, max_state_bytes(*run.network));
  needs.splits_checkpoints = !world.all_true(!needs.shard || needs.shard->files == 1);
  const ReplicaShape shape{.network = *run.network,
                           .options = run.config.trainer,
                           .bytes_per_value = run.processor.precision == Precision::bf16 ? 2 : sizeof(float),
                           .rank = world.rank(),
                           .ranks = world.size(),
                           .test_samples = run.data.test ? run.data.test->info().samples : 0};
  needs.keeps_states = !run.config.output.folder.empty() && !run.config.output.keep_steps.is_off();
  Findings mine;
  if (needs.keeps_states) {
    mine = KeptStates(world, run.config.output.folder)
               .check_room(world.host(), estimate_memory(shape).checkpoint, run.config.output.keep_steps);
    needs.keeps_states = world.all_true(mine.all().empty());
  }
  const StateCopies copies{.shard = needs.shard,
                           .kept = needs.keeps_states && world.local_rank() == 0 ? kKeptAtOnce : 0};
  needs.memory = check_job_memory(world, shape, copies, Machine(), run.processor.is_gpu(), device_free);
  needs.memory.findings.add(gather(world, mine));
  return needs;
}

Findings check_run(World& world, const PreparedRun& run, const RunStart& start, const RunPlan& plan,
                   Severity of_one_class) {
  const RunConfig& config = run.config;
  const DatasetInfo& data = run.data.train->info();
  Findings mine = check_parts(config, !run.network->layout().statistics().empty(), data.samples);
  const HostLoad load{.host = world.host(),
                      .ranks = world.local_size(),
                      .threads = config.trainer.threads,
                      .busy_threads = run.busy_cores(world),
                      .cores = run.cores,
                      .quota = Machine().group_limits().cores};
  const char* const setting = std::getenv("OMPI_MCA_mpi_yield_when_idle");
  mine.add(check_cores(load));
  if (run.processor.is_gpu()) mine.add(check_affinity(Machine(), run.processor.gpu));
  mine.add(check_waiting(load, world.description(), setting == nullptr ? "" : setting));
  Findings all = check_data(data, config.trainer.recipe.image, of_one_class);
  all.add(check_rates(config, plan.steps, plan.schedule_steps));
  all.add(gather(world, mine));
  all.add(check_tests(config, data.class_names, run.data.test.get()));
  all.attempt([&] {
    run_or_throw_on_all(world, [&] {
      const TrainerOptions& options = config.trainer;
      validate(options.early_stop, options.test_every_epochs > 0 && run.data.test && run.data.test->info().samples > 0);
      static_cast<void>(LrSchedule(options.learning_rate, plan.epoch_steps, plan.schedule_steps));
    });
  });
  if (!start.resumed && !start.weights) all.add(check_biases(*run.network));
  if (!start.weights) return all;
  Findings of_weights;
  all.attempt([&] {
    run_or_throw_on_all(world, [&] { of_weights = check_weights(*start.weights, config, *run.network, data); });
  });
  all.add(of_weights);
  return all;
}

}  // namespace tutti
