#include "assemble.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/nn/model_file.hpp"

#include "output.hpp"
#include "plan_choices.hpp"
#include "preflight/agreement.hpp"
#include "processors.hpp"
#include "run_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// The first rank of a host loads the data for all ranks of the host.
void refuse_other_data_on_a_host(World& world, const std::vector<std::string>& hosts, const DataRequest& request) {
  const auto requests = all_gather_text(
      world, request.images.empty()
                 ? fmt::format("--data {} --test-data {} --class-depth {} --validation-ratio {} --validation-split {} "
                               "--validation-groups {} --seed {} --skip-bad-images {} --exif {}",
                               request.train, request.test, request.class_depth, request.validation_ratio,
                               name_of(request.split), request.validation_groups, request.seed, request.skip_bad_images,
                               request.applies_exif)
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
int max_concurrent_parts(const Cores& cores, const TrainerOptions& options, const World& world) {
  const std::int64_t share = std::min(cores.mine, cores.usable / world.local_size());
  return static_cast<int>(std::max<std::int64_t>(1, share / options.threads));
}

// The number of cores that the ranks of this host keep busy.
std::int64_t count_busy_cores(const Cores& cores, const TrainerOptions& options, const World& world) {
  const int parts =
      std::ranges::max(max_parts_by_rank(options.part_map, static_cast<int>(options.num_parts), world.size()));
  const int workers = std::min(max_concurrent_parts(cores, options, world), parts);
  return workers * options.threads * world.local_size();
}

void log_idle_cores(const PreparedRun& run, const World& world, const Log& log) {
  const Cores& cores = run.cores;
  const std::int64_t busy = run.busy_cores(world);
  if (world.rank() == 0 && busy < cores.usable) {
    log.info(fmt::format("{} of {} usable cores stay idle: use more ranks, --parts or --threads", cores.usable - busy,
                         cores.usable));
  } else if (world.rank() == 0 && busy < cores.present && cores.usable < cores.present) {
    log.info(fmt::format("the launcher bound this host's ranks to {} of its {} cores: start mpirun with --bind-to none",
                         cores.usable, cores.present));
  }
}

// Converts the images to the size of the training data, as for the test images of the training.
void fit_data(DataPair& data, RunConfig& config, const TrainedOn& trained) {
  const bool needs_labels = !config.data.allow_unlabelled;
  const std::int64_t height = trained.image[1];
  const std::int64_t width = trained.image[2];
  for (auto* const set : {&data.train, &data.test}) {
    if (!*set) continue;
    if (const std::string problem = needs_labels ? label_mismatch((*set)->info(), trained) : ""; !problem.empty()) {
      throw Error(ErrorSource::input,
                  fmt::format("{}: {} predict labels the images without them", problem, program_call()));
    }
    *set = adapt_to(trained, std::move(*set), data.notes);
    const DatasetInfo& info = (*set)->info();
    if (config.recipe.image_size != 0 || (info.image[1] == height && info.image[2] == width)) continue;
    if (height != width) {
      throw Error(ErrorSource::input, fmt::format("the images of {} are not {} x {} as the network needs: images can "
                                                  "only be resized to squares",
                                                  info.name, height, width));
    }
    config.recipe.image_size = height;
    const std::string sizes =
        info.sizes_differ() ? "different sizes" : fmt::format("{} x {}", info.image[1], info.image[2]);
    data.notes.push_back(fmt::format("{}: {}, resized to {} x {} for the network", info.name, sizes, height, width));
  }
}

// Data sets that the command line names are used whole. If they are the data of the run, at any path, they are split as
// in the run.
RunData open_named_data(World& world, const std::vector<std::string>& hosts, const TrainState& state,
                        RunConfig& config) {
  RunConfig whole = config;
  whole.data.validation_ratio = 0;
  RunData opened = open_run_data(world, hosts, whole);
  const bool is_of_run =
      config.data.validation_ratio > 0 && matches_after_hold_out(state.data_digest, *opened.data.train, config.data);
  if (world.all_true(is_of_run)) {
    opened = {};
    return open_run_data(world, hosts, config);
  }
  config.data.validation_ratio = 0;
  return opened;
}

RunData open_data_of(World& world, const std::vector<std::string>& hosts, const Sources& sources, RunConfig& config) {
  RunData opened = sources.evaluates && !config.data.from_checkpoint
                       ? open_named_data(world, hosts, *sources.checkpoint, config)
                       : open_run_data(world, hosts, config);
  if (sources.trained) run_or_throw_on_all(world, [&] { fit_data(opened.data, config, *sources.trained); });
  return opened;
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

JobFacts find_facts(World& world, Device device) {
  return {.hosts = all_gather_text(world, world.host()), .cores = count_cores(world), .gpus = gpu_facts(device)};
}

void resolve_parallelism(World& world, const Cores& cores, bool all_on_gpus, RunConfig& config) {
  // On GPUs, one thread per rank enqueues the work.
  const int fair_threads = all_on_gpus ? 1 : fewest_cores_per_rank(world, cores);
  // Large enough that a step consists of few CUDA graphs.
  if (config.bucket_mib == 0) config.bucket_mib = all_on_gpus ? 16 : 4;
  run_or_throw_on_all(world, [&] { resolve_parts(config, world.size(), fair_threads); });
}

RunData open_run_data(World& world, const std::vector<std::string>& hosts, const RunConfig& config) {
  const DataRequest& request = config.data;
  const CustomData* custom = nullptr;
  run_or_throw_on_all(world, [&] { custom = request.images.empty() ? find_custom_data(config) : nullptr; });
  const bool is_custom = world.all_true(custom != nullptr);
  RunData opened;
  if (!is_custom) {
    refuse_other_data_on_a_host(world, hosts, request);
    GrowingMemory memory = world.begin_node_memory();
    run_or_throw_on_all(world, [&] {
      if (world.local_rank() == 0) load_data(request, memory);
    });
    opened.block = world.share(std::move(memory));
  }
  run_or_throw_on_all(world, [&] {
    opened.data = is_custom ? open_custom(*custom, request.allow_unlabelled) : open_loaded(opened.block);
    opened.data_digest = opened.data.train->digest();
  });
  return opened;
}

std::unique_ptr<Network> make_network(World& world, const Cores& cores, const ChosenProcessor& processor,
                                      const DataPair& data, const Sources& sources, RunConfig& config) {
  std::unique_ptr<Network> network;
  run_or_throw_on_all(world, [&] {
    TrainerOptions& options = config.trainer;
    options = resolve_options(config, sources.model);
    if (!sources.evaluates) options.class_weights = class_weights(config.class_weights, *data.train);
    options.recipe = make_recipe(config.recipe, *data.train);
    // A resume or evaluation, on any data, normalizes as in the training.
    if (config.recipe.normalize == "auto") config.recipe.normalize = normalize_text(options.recipe.statistics);
    options.max_workers = processor.is_gpu() ? 1 : max_concurrent_parts(cores, options, world);
    options.readers =
        reader_threads_per_rank(world, cores, count_busy_cores(cores, options, world) / world.local_size());
    network = std::make_unique<Network>(sources.model, options.recipe.image, data.train->info().classes,
                                        split(config.freeze, ','));
    if (sources.evaluates) return;
    require_matches(options.optimizer, network->layout());
    // On resume, only audits use initial weights.
    if (sources.checkpoint != nullptr && options.safeguards.audit_every_steps == 0) return;
    set_whitening(*network, *data.train, options.recipe);
  });
  return network;
}

std::int64_t PreparedRun::busy_cores(const World& world) const {
  return count_busy_cores(cores, config.trainer, world);
}

Findings check_agreement(World& world, const PreparedRun& run) {
  std::vector<AgreedValue> values = agreed_options(run.config);
  const Dataset* test = run.data.test.get();
  values.push_back(
      {"network", digest_text(hash64(model_text(run.network->spec()))), "give all ranks the same --model"});
  values.push_back({"training data", digest_text(run.data_digest), "give all ranks the same --data"});
  values.push_back(
      {"test data", test == nullptr ? "none" : digest_text(test->digest()), "give all ranks the same test set"});
  const std::string same_files = "copy the images again, so that all hosts have the same bytes";
  for (const auto& [which, set] :
       {std::pair<const char*, const Dataset*>{"training", run.data.train.get()}, {"test", test}}) {
    const auto files = set == nullptr ? std::nullopt : set->info().contents;
    if (!files) continue;
    values.push_back({fmt::format("content of {} of the {} images", files->sampled_files, which),
                      digest_text(files->sample_digest), same_files});
    if (files->whole) {
      values.push_back({fmt::format("content of all {} images", which), digest_text(*files->whole), same_files});
    }
  }
  return compare_across_ranks(world, values);
}

Communicators connect(World& world, const PreparedRun& run, const Log& log) {
  const bool spare_core = run.cores.usable > run.busy_cores(world);
  Communicators made;
  made.has_core_for_communication = spare_core || run.processor.is_gpu();
  run_or_throw_on_all(world, [&] {
    made.communicator = choose_communicator(world, run.config, run.processor, spare_core);
    if (run.config.trainer.batch_norm == BatchNorm::global && world.size() > 1) {
      made.norm_communicator = make_mpi_library_communicator(world);
    }
  });
  if (!run.processor.all_on_gpus) log_idle_cores(run, world, log);
  return made;
}

TrainerContext Assembly::trainer_context(Backend& computing) const {
  return {.backend = computing,
          .communicator = *communicator,
          .network = *network,
          .train = *data.train,
          .test = data.test.get(),
          .norm_communicator = norm_communicator.get()};
}

Assembly assemble(World& world, const JobFacts& facts, const RunConfig& given, const Sources& sources, const Log& log) {
  RunConfig config = given;
  const Cores& cores = facts.cores;
  run_or_throw_on_all(world, [&] { refuse_contradictions(config); });
  ChosenProcessor processor = choose_processor(world, facts.gpus, config.processor, log);
  config.processor.precision = processor.precision;
  resolve_parallelism(world, cores, processor.all_on_gpus, config);
  adopt_known_choices(world, config.processor, sources.checkpoint == nullptr ? "" : sources.checkpoint->choices,
                      *processor.backend, log);
  RunData opened = open_data_of(world, facts.hosts, sources, config);
  auto network = make_network(world, cores, processor, opened.data, sources, config);
  for (const std::string& note : opened.data.notes) log.info(note);
  PreparedRun run{std::move(opened), config, cores, std::move(processor), std::move(network)};
  log_or_throw(world, check_agreement(world, run), log);
  Communicators communicators = connect(world, run, log);
  return {std::move(run), std::move(communicators)};
}

Assembly assemble(World& world, const RunConfig& config, const Log& log) {
  NetworkSpec model;
  run_or_throw_on_all(world, [&] { model = choose_model(config); });
  return assemble(world, find_facts(world, config.processor.device), config, {.model = model}, log);
}

std::unique_ptr<World> make_world() { return started_by_launcher() ? make_mpi_world() : make_solo_world(); }

}  // namespace tutti
