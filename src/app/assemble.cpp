#include "assemble.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/nn/models.hpp"

#include "output.hpp"
#include "plan_choices.hpp"
#include "preflight/findings.hpp"
#include "processors.hpp"
#include "run_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// The first rank of a host loads the data for all ranks of the host.
void refuse_other_data_on_a_host(World& world, const DataRequest& request) {
  const auto hosts = all_gather_text(world, world.host());
  const auto requests = all_gather_text(
      world, request.images.empty()
                 ? fmt::format("--data {} --test-data {} --validation-ratio {} --validation-split {} --seed {} "
                               "--skip-bad-images {} --exif {}",
                               request.train, request.test, request.validation_ratio, name_of(request.split),
                               request.seed, request.skip_bad_images, request.applies_exif)
                 : fmt::format("{} --skip-bad-images {} --exif {}", fmt::join(request.images, " "),
                               request.skip_bad_images, request.applies_exif));
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto first = static_cast<std::size_t>(std::ranges::find(hosts, hosts[rank]) - hosts.begin());
    if (requests[rank] == requests[first]) continue;
    throw Error(ErrorSource::input,
                fmt::format("rank {} requests other data than rank {} on the same host, {} instead of {}: "
                            "give all ranks the same",
                            rank, first, requests[rank], requests[first]))
        .on_all_ranks();
  }
}

// The number of parts that a rank can compute at the same time on its share of the cores.
int max_concurrent_parts(const Assembly& assembly, const World& world) {
  const std::int64_t share = std::min(assembly.cores.mine, assembly.cores.usable / world.local_size());
  return static_cast<int>(std::max<std::int64_t>(1, share / assembly.config.trainer.threads));
}

void log_idle_cores(const Assembly& assembly, const World& world, const Log& log) {
  const Cores& cores = assembly.cores;
  const std::int64_t busy = assembly.busy_cores(world);
  if (world.rank() == 0 && busy < cores.usable) {
    log.info(fmt::format("{} of {} usable cores stay idle: use more ranks, --parts or --threads", cores.usable - busy,
                         cores.usable));
  } else if (world.rank() == 0 && busy < cores.present && cores.usable < cores.present) {
    log.info(fmt::format("the launcher bound this host's ranks to {} of its {} cores: start mpirun with --bind-to none",
                         cores.usable, cores.present));
  }
}

// Converts the images to the size of the training data, as for the test images of the training.
void fit_data(Assembly& assembly, const TrainedOn& trained, bool needs_labels) {
  const std::int64_t height = trained.image[1];
  const std::int64_t width = trained.image[2];
  for (auto* const set : {&assembly.data.train, &assembly.data.test}) {
    if (!*set) continue;
    if (const std::string problem = needs_labels ? label_mismatch((*set)->info(), trained) : ""; !problem.empty()) {
      throw Error(ErrorSource::input,
                  fmt::format("{}: {} predict labels the images without them", problem, program_call()));
    }
    *set = adapt_to(trained, std::move(*set), assembly.data.notes);
    const DatasetInfo& info = (*set)->info();
    if (assembly.config.recipe.image_size != 0 || (info.image[1] == height && info.image[2] == width)) continue;
    if (height != width) {
      throw Error(ErrorSource::input, fmt::format("the images of {} are not {} x {} as the network needs: images can "
                                                  "only be resized to squares",
                                                  info.name, height, width));
    }
    assembly.config.recipe.image_size = height;
    const std::string sizes =
        info.sizes_differ() ? "different sizes" : fmt::format("{} x {}", info.image[1], info.image[2]);
    assembly.data.notes.push_back(
        fmt::format("{}: {}, resized to {} x {} for the network", info.name, sizes, height, width));
  }
}

void resolve_parts_and_buckets(World& world, Assembly& assembly) {
  const bool all_on_gpus = assembly.processor.all_on_gpus;
  // On GPUs, one thread per rank enqueues the work.
  const int fair_threads = all_on_gpus ? 1 : fewest_cores_per_rank(world, assembly.cores);
  // Large enough that a step consists of few CUDA graphs.
  if (assembly.config.bucket_mib == 0) assembly.config.bucket_mib = all_on_gpus ? 16 : 4;
  run_or_throw_on_all(world, [&] { resolve_parts(assembly.config, world.size(), fair_threads); });
}

void open_data(World& world, Assembly& assembly) {
  const DataRequest& request = assembly.config.data;
  const CustomData* custom = nullptr;
  run_or_throw_on_all(world, [&] { custom = request.images.empty() ? find_custom_data(assembly.config) : nullptr; });
  const bool is_custom = world.all_true(custom != nullptr);
  if (!is_custom) assembly.block = load_once(world, request);
  run_or_throw_on_all(world, [&] {
    assembly.data = is_custom ? open_custom(*custom, request.allow_unlabelled) : open_loaded(assembly.block);
    assembly.data_digest = assembly.data.train->digest();
  });
}

void assemble_network(World& world, Assembly& assembly, const Sources& sources) {
  const bool on_gpu = assembly.processor.is_gpu();
  run_or_throw_on_all(world, [&] {
    const DatasetInfo& info = assembly.data.train->info();
    TrainerOptions& options = assembly.config.trainer;
    options = resolve_options(assembly.config, *sources.model);
    if (!sources.evaluates) {
      options.class_weights = class_weights(assembly.config.class_weights, *assembly.data.train);
    }
    options.recipe = make_recipe(assembly.config.recipe, *assembly.data.train);
    // A resume or evaluation, on any data, normalizes as in the training.
    if (assembly.config.recipe.normalize == "auto") {
      assembly.config.recipe.normalize = normalize_text(options.recipe.statistics);
    }
    options.max_workers = on_gpu ? 1 : max_concurrent_parts(assembly, world);
    options.readers = reader_threads_per_rank(world, assembly.cores, assembly.busy_cores(world) / world.local_size());
    assembly.network = std::make_unique<Network>(*sources.model, options.recipe.image, info.classes,
                                                 split(assembly.config.freeze, ','));
    if (sources.evaluates) return;
    require_matches(options.optimizer, assembly.network->layout());
    // On resume, only audits use initial weights.
    if (sources.checkpoint != nullptr && options.safeguards.audit_every_steps == 0) return;
    set_whitening(*assembly.network, *assembly.data.train, options.recipe);
  });
}

std::vector<AgreedValue> values_to_agree_on(const Assembly& assembly) {
  std::vector<AgreedValue> values = agreed_options(assembly.config);
  const Dataset* test = assembly.data.test.get();
  values.push_back(
      {"network", digest_text(hash64(model_text(assembly.network->spec()))), "give all ranks the same --model"});
  values.push_back({"training data", digest_text(assembly.data_digest), "give all ranks the same --data"});
  values.push_back(
      {"test data", test == nullptr ? "none" : digest_text(test->digest()), "give all ranks the same test set"});
  const std::string same_files = "copy the images again, so that all hosts have the same bytes";
  for (const auto& [which, set] :
       {std::pair{"training", assembly.data.train.get()}, std::pair{"test", assembly.data.test.get()}}) {
    const auto files = set == nullptr ? std::nullopt : set->info().contents;
    if (!files) continue;
    values.push_back({fmt::format("content of {} of the {} images", files->sampled_files, which),
                      digest_text(files->sample_digest), same_files});
    if (files->whole) {
      values.push_back({fmt::format("content of all {} images", which), digest_text(*files->whole), same_files});
    }
  }
  return values;
}

// Data sets that the command line names are used whole. If they are the data of the run, at any path, they are split as
// in the run.
void open_named_data(World& world, Assembly& assembly, const TrainState& state) {
  const DataRequest of_run = assembly.config.data;
  assembly.config.data.validation_ratio = 0;
  open_data(world, assembly);
  const bool is_of_run =
      of_run.validation_ratio > 0 && matches_after_hold_out(state.data_digest, *assembly.data.train, of_run);
  if (!world.all_true(is_of_run)) return;
  assembly.config.data = of_run;
  assembly.data = {};
  open_data(world, assembly);
}

void assemble_data(World& world, Assembly& assembly, const Sources& sources) {
  const DataRequest& request = assembly.config.data;
  if (sources.evaluates && !request.from_checkpoint) {
    open_named_data(world, assembly, *sources.checkpoint);
  } else {
    open_data(world, assembly);
  }
  if (!sources.trained) return;
  run_or_throw_on_all(world, [&] { fit_data(assembly, *sources.trained, !request.allow_unlabelled); });
}

void assemble_communicator(World& world, Assembly& assembly, const Log& log) {
  const bool spare_core = assembly.cores.usable > assembly.busy_cores(world);
  run_or_throw_on_all(world, [&] {
    assembly.communicator = choose_communicator(world, assembly.config, assembly.processor, spare_core);
    if (assembly.config.trainer.batch_norm == BatchNorm::global && world.size() > 1) {
      assembly.norm_communicator = make_mpi_library_communicator(world);
    }
  });
  assembly.has_core_for_communication = spare_core || assembly.processor.is_gpu();
  if (!assembly.processor.all_on_gpus) log_idle_cores(assembly, world, log);
}

}  // namespace

bool is_model_file(const std::string& model) {
  return model.find('/') != std::string::npos || model.ends_with(".toml");
}

NetworkSpec choose_model(const RunConfig& config) {
  const std::string& model = config.model;
  if (config.extensions != nullptr) {
    const auto found = std::ranges::find(config.extensions->networks, model, &NetworkSpec::name);
    if (found != config.extensions->networks.end()) return *found;
  }
  return is_model_file(model) ? read_model_file(model) : built_in_model(model);
}

const CustomData* find_custom_data(const RunConfig& config) {
  if (config.extensions == nullptr) return nullptr;
  const auto found = std::ranges::find(config.extensions->data, config.data.train, &CustomData::name);
  if (found == config.extensions->data.end()) return nullptr;
  const bool reads_test = !config.data.test.empty();
  if (!reads_test && config.data.validation_ratio == 0) return &*found;
  throw Error(
      ErrorSource::usage,
      fmt::format("{} is for data that are read from files, and --data {} is an extension of this program, with "
                  "its own test set or none: leave the option out",
                  reads_test ? "--test-data" : "--validation-ratio", config.data.train));
}

DataPair open_custom(const CustomData& data, bool allow_unlabelled) {
  DataPair pair = data.open();
  if (!pair.train || pair.train->info().samples == 0) {
    throw Error(
        ErrorSource::input,
        fmt::format("the data set '{}' of this program holds no training samples: open() must give some", data.name));
  }
  const bool is_labelled = pair.train->info().labelled && (!pair.test || pair.test->info().labelled);
  if (!is_labelled && !allow_unlabelled) {
    throw Error(ErrorSource::input,
                fmt::format("the data set '{}' of this program has no labels: {} predict labels its images", data.name,
                            program_call()));
  }
  return pair;
}

Buffer load_once(World& world, const DataRequest& request) {
  refuse_other_data_on_a_host(world, request);
  GrowingMemory memory = world.begin_node_memory();
  run_or_throw_on_all(world, [&] {
    if (world.local_rank() == 0) load_data(request, memory);
  });
  return world.share(std::move(memory));
}

std::int64_t Assembly::busy_cores(const World& world) const {
  const int parts = std::ranges::max(
      max_parts_by_rank(config.trainer.part_map, static_cast<int>(config.trainer.num_parts), world.size()));
  const int workers = std::min(max_concurrent_parts(*this, world), parts);
  return workers * config.trainer.threads * world.local_size();
}

TrainerContext Assembly::trainer_context(Backend& computing) const {
  return {.backend = computing,
          .communicator = *communicator,
          .network = *network,
          .train = *data.train,
          .test = data.test.get(),
          .norm_communicator = norm_communicator.get()};
}

Assembly assemble(World& world, const RunConfig& config, const Sources& sources, PreflightReporter& preflight,
                  const Log& log) {
  Assembly assembly;
  assembly.config = config;
  assembly.cores = count_cores(world);
  preflight.attempt([&] { run_or_throw_on_all(world, [&] { refuse_contradictions(config); }); });
  const bool has_processor =
      preflight.attempt([&] { assembly.processor = choose_processor(world, config.processor, log); });
  const bool has_ranks = preflight.attempt([&] { resolve_parts_and_buckets(world, assembly); });
  if (has_processor) {
    assembly.config.processor.precision = assembly.processor.precision;
    const std::string choices = sources.checkpoint == nullptr ? "" : sources.checkpoint->choices;
    preflight.attempt([&] { adopt_known_choices(world, config.processor, choices, *assembly.processor.backend, log); });
  }
  const bool has_data = preflight.attempt([&] { assemble_data(world, assembly, sources); });
  if (sources.model != nullptr && has_ranks && has_data) {
    preflight.attempt([&] { assemble_network(world, assembly, sources); });
  }
  for (const std::string& note : assembly.data.notes) log.info(note);
  if (assembly.network) preflight.add(compare_across_ranks(world, values_to_agree_on(assembly)));
  if (has_processor && has_ranks) preflight.attempt([&] { assemble_communicator(world, assembly, log); });
  assembly.backend = std::move(assembly.processor.backend);
  return assembly;
}

Assembly assemble(World& world, const RunConfig& config, const Log& log) {
  NetworkSpec model;
  run_or_throw_on_all(world, [&] { model = choose_model(config); });
  PreflightReporter preflight(world, log);
  return assemble(world, config, {.model = &model}, preflight, log);
}

std::unique_ptr<World> make_world() { return started_by_launcher() ? make_mpi_world() : make_solo_world(); }

}  // namespace tutti
