#include "assemble.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/data/split_batch_sampler.hpp"
#include "tutti/nn/model_file.hpp"

#include "option_table.hpp"
#include "output.hpp"
#include "preflight/findings.hpp"
#include "preflight/host.hpp"
#include "processors.hpp"
#include "run_config.hpp"
#include "run_data.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// The number of parts that a rank can compute at the same time on its share of the cores.
int max_concurrent_parts(const RunConfig& config, const World& world, const Cores& cores) {
  const std::int64_t share = std::min(cores.mine, cores.usable / world.local_size());
  return static_cast<int>(std::max<std::int64_t>(1, share / config.threads));
}

std::int64_t busy_cores(const RunConfig& config, const World& world, const Cores& cores) {
  const int parts = std::ranges::max(max_parts_by_rank(*config.part_map, static_cast<int>(config.parts), world.size()));
  const int workers = std::min(max_concurrent_parts(config, world, cores), parts);
  return workers * config.threads * world.local_size();
}

void log_idle_cores(const RunConfig& config, const World& world, const Cores& cores, const Log& log) {
  const std::int64_t busy = busy_cores(config, world, cores);
  if (world.rank() == 0 && busy < cores.usable) {
    log.info(fmt::format("{} of {} usable cores stay idle: use more ranks, --parts or --threads", cores.usable - busy,
                         cores.usable));
  } else if (world.rank() == 0 && busy < cores.present && cores.usable < cores.present) {
    log.info(fmt::format("the launcher bound this host's ranks to {} of its {} cores: start mpirun with --bind-to none",
                         cores.usable, cores.present));
  }
}

// Larger data sets are read lazily, to leave room for the page cache.
std::size_t most_resident_bytes(const RunConfig& config) {
  if (config.resident_mib > 0) return static_cast<std::size_t>(config.resident_mib) << 20;
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes) / 4 : 0;
}

void refuse_labels(const TrainedOn& trained, const DatasetInfo& data) {
  const std::string problem = label_mismatch(data, trained);
  if (problem.empty()) return;
  throw Error(ErrorSource::input,
              fmt::format("{}: {} predict labels the images without them", problem, program_call()));
}

// Converts the images to the size of the training data, as for the test images of the training.
void fit_data(Assembly& assembly, const TrainedOn& trained, bool needs_labels) {
  const std::int64_t height = trained.image[1];
  const std::int64_t width = trained.image[2];
  for (auto* const set : {&assembly.data.train, &assembly.data.test}) {
    if (!*set) continue;
    if (needs_labels) refuse_labels(trained, (*set)->info());
    *set = adapt_to(trained, std::move(*set), assembly.data.notes);
    const DatasetInfo& info = (*set)->info();
    if (assembly.config.image_size != 0 || (info.image[1] == height && info.image[2] == width)) continue;
    if (height != width) {
      throw Error(ErrorSource::input, fmt::format("the images of {} are not {} x {} as the network needs: images can "
                                                  "only be resized to squares",
                                                  info.name, height, width));
    }
    assembly.config.image_size = height;
    const std::string sizes =
        info.sizes_differ() ? "different sizes" : fmt::format("{} x {}", info.image[1], info.image[2]);
    assembly.data.notes.push_back(
        fmt::format("{}: {}, resized to {} x {} for the network", info.name, sizes, height, width));
  }
}

}  // namespace

DataRequest data_request(const RunConfig& config) {
  return {.train = config.data,
          .test = config.test_data,
          .validation_ratio = config.validation_ratio,
          .seed = static_cast<std::uint64_t>(config.seed),
          .skip_bad_images = config.skip_bad_images,
          .verification = config.verify_data ? Verification::whole : Verification::start,
          .data_file_check = config.verify_data ? DataFileCheck::all : DataFileCheck::none,
          .upright = config.exif,
          .most_resident_bytes = most_resident_bytes(config)};
}

RecipeRequest recipe_request(const RunConfig& config) {
  return {.augment = config.augment,
          .normalize = config.normalize,
          .image_size = config.image_size,
          .seed = static_cast<std::uint64_t>(config.seed)};
}

std::int64_t Assembly::busy_cores(const World& world) const { return tutti::busy_cores(config, world, cores); }

TrainerContext Assembly::trainer_context() const {
  return {.backend = *backend,
          .communicator = *communicator,
          .network = *network,
          .train = *data.train,
          .test = data.test.get()};
}

EstimateRequest memory_request(const Assembly& assembly, const World& world, const std::optional<FileShard>& share) {
  return {.network = *assembly.network,
          .options = assembly.options,
          .config = assembly.config,
          .rank = world.rank(),
          .ranks = world.size(),
          .test_samples = assembly.data.test ? assembly.data.test->info().samples : 0,
          .share = share};
}

namespace {

struct PlannedSteps {
  std::int64_t all = 0;
  std::int64_t scheduled = 0;  // that --schedule-epochs covers; without it, all
};

PlannedSteps planned_steps(const Assembly& assembly) {
  const TrainerOptions& options = assembly.options;
  const SplitBatchSampler sampler(assembly.data.train->info().samples, options.batch_size, 1, 0, options.last_batch);
  PlannedSteps planned{.all = sampler.steps_before(options.epochs)};
  if (options.steps > 0) planned.all = std::min(planned.all, options.steps);
  planned.scheduled = options.schedule_epochs > 0 ? sampler.steps_before(options.schedule_epochs) : planned.all;
  return planned;
}

}  // namespace

Findings check_load(World& world, const Assembly& assembly) {
  Findings mine = check_parts(assembly.config, !assembly.network->layout().statistics().empty(),
                              assembly.data.train->info().samples);
  const HostLoad load{.host = world.host(),
                      .ranks = world.local_size(),
                      .threads = assembly.config.threads,
                      .busy_threads = assembly.busy_cores(world),
                      .cores = assembly.cores,
                      .quota = Machine().group_limits().cores};
  const char* const setting = std::getenv("OMPI_MCA_mpi_yield_when_idle");
  mine.add(check_cores(load));
  mine.add(check_waiting(load, world.description(), setting == nullptr ? "" : setting));
  Findings all = check_classes(assembly.data.train->info());  // the same on all ranks
  const auto [planned, scheduled] = planned_steps(assembly);
  all.add(check_rates(assembly.config, planned, scheduled));
  all.add(gather(world, mine));
  return all;
}

namespace {

void resolve_parts_and_buckets(World& world, Assembly& assembly) {
  const bool all_on_gpus = assembly.processor.all_on_gpus;
  // On GPUs, one thread per rank enqueues the work.
  const int fair_threads = all_on_gpus ? 1 : fewest_cores_per_rank(world, assembly.cores);
  // Large enough that a step consists of few CUDA graphs.
  if (assembly.config.bucket_mib == 0) assembly.config.bucket_mib = all_on_gpus ? 16 : 4;
  run_or_throw_on_all(world, [&] { resolve_parts(assembly.config, world.size(), fair_threads); });
}

void assemble_data(World& world, Assembly& assembly, const DataRequest& request) {
  const CustomData* custom = nullptr;
  run_or_throw_on_all(world, [&] { custom = request.images.empty() ? find_custom_data(assembly.config) : nullptr; });
  const bool is_custom = world.all_true(custom != nullptr);
  if (!is_custom) assembly.block = load_once(world, request);
  run_or_throw_on_all(world, [&] {
    assembly.data = is_custom ? open_custom(*custom, request.allow_unlabelled) : open_loaded(assembly.block.bytes());
    assembly.data_digest = assembly.data.train->digest();
  });
}

void assemble_network(World& world, Assembly& assembly, const NetworkSpec& model) {
  const bool on_gpu = assembly.processor.is_gpu();
  run_or_throw_on_all(world, [&] {
    const DatasetInfo& info = assembly.data.train->info();
    assembly.options = resolve_options(assembly.config, model);
    assembly.options.recipe = make_recipe(recipe_request(assembly.config), *assembly.data.train);
    // A resume or evaluation, on any data, normalizes as in the training.
    if (assembly.config.normalize == "auto") {
      assembly.config.normalize = normalize_text(assembly.options.recipe.statistics);
    }
    assembly.options.max_workers = on_gpu ? 1 : max_concurrent_parts(assembly.config, world, assembly.cores);
    assembly.options.readers =
        reader_threads_per_rank(world, assembly.cores, assembly.busy_cores(world) / world.local_size());
    assembly.network = std::make_unique<Network>(model, assembly.options.recipe.image, info.classes);
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
    values.push_back(
        {fmt::format("content of {} of the {} images", files->sampled, which), digest_text(files->sample), same_files});
    if (files->whole) {
      values.push_back({fmt::format("content of all {} images", which), digest_text(*files->whole), same_files});
    }
  }
  return values;
}

// Data sets that the command line names are used whole. If they are the data of the run, at any path, they are split as
// in the run.
void assemble_named_data(World& world, Assembly& assembly, DataRequest request, const TrainState& state) {
  const double ratio = std::exchange(request.validation_ratio, 0);
  assembly.config.validation_ratio = 0;
  assemble_data(world, assembly, request);
  const bool is_of_run = ratio > 0 && matches_after_hold_out(state.data_digest, *assembly.data.train, ratio,
                                                             static_cast<std::uint64_t>(request.seed));
  if (!world.all_true(is_of_run)) return;
  request.validation_ratio = ratio;
  assembly.config.validation_ratio = ratio;
  assembly.data = {};
  assemble_data(world, assembly, request);
}

struct Sources {
  const TrainState* checkpoint = nullptr;
  const NetworkSpec* model = nullptr;
  DataRequest request{};
  const EvaluationData* evaluation = nullptr;
};

bool names_data(const TrainState& checkpoint, const std::string& data) {
  RunConfig stored;
  std::set<std::string> read;
  read_config_text(checkpoint.configuration, "the checkpoint", stored, read);
  return stored.data == data;
}

void assemble_all_data(World& world, Assembly& assembly, const Sources& sources) {
  if (sources.evaluation != nullptr && sources.evaluation->data_was_given) {
    assemble_named_data(world, assembly, sources.request, sources.evaluation->state);
  } else {
    assemble_data(world, assembly, sources.request);
  }
  if (sources.evaluation != nullptr && sources.evaluation->trained) {
    run_or_throw_on_all(world,
                        [&] { fit_data(assembly, *sources.evaluation->trained, sources.evaluation->needs_labels); });
  }
}

void assemble_communicator(World& world, Assembly& assembly, const Log& log) {
  const bool spare_core = assembly.cores.usable > assembly.busy_cores(world);
  run_or_throw_on_all(world, [&] {
    assembly.communicator = choose_communicator(world, assembly.config, assembly.processor, spare_core);
  });
  assembly.has_core_for_communication = spare_core || assembly.processor.is_gpu();
  if (!assembly.processor.all_on_gpus) log_idle_cores(assembly.config, world, assembly.cores, log);
}

Assembly assemble_from(World& world, const RunConfig& config, const Sources& sources, PreflightErrors& preflight,
                       const Log& log) {
  Assembly assembly;
  assembly.config = config;
  assembly.cores = count_cores(world);
  preflight.attempt([&] { run_or_throw_on_all(world, [&] { refuse_contradictions(config); }); });
  const bool has_processor = preflight.attempt([&] { assembly.processor = choose_processor(world, config, log); });
  const bool has_ranks = preflight.attempt([&] { resolve_parts_and_buckets(world, assembly); });
  if (has_processor) {
    assembly.config.precision = assembly.processor.precision;
    const std::string choices = sources.checkpoint == nullptr ? "" : sources.checkpoint->choices;
    preflight.attempt([&] { adopt_known_choices(world, config, choices, *assembly.processor.backend, log); });
  }
  const bool has_data = preflight.attempt([&] { assemble_all_data(world, assembly, sources); });
  if (sources.model != nullptr && has_ranks && has_data) {
    preflight.attempt([&] { assemble_network(world, assembly, *sources.model); });
  }
  for (const std::string& note : assembly.data.notes) log.info(note);
  if (assembly.network) preflight.add(compare(world, values_to_agree_on(assembly)));
  if (has_processor && has_ranks) preflight.attempt([&] { assemble_communicator(world, assembly, log); });
  assembly.backend = std::move(assembly.processor.backend);
  return assembly;
}

}  // namespace

Assembly assemble(World& world, const RunConfig& config, const TrainingSources& sources, PreflightErrors& preflight,
                  const Log& log) {
  DataRequest request = data_request(config);
  request.allow_non_utf8_names = sources.checkpoint != nullptr;
  request.from_checkpoint = sources.checkpoint != nullptr && names_data(*sources.checkpoint, config.data);
  if (sources.decode_sample && request.verification == Verification::start) request.verification = Verification::sample;
  return assemble_from(world, config, {.checkpoint = sources.checkpoint, .model = sources.model, .request = request},
                       preflight, log);
}

Assembly assemble(World& world, const RunConfig& config, const Log& log) {
  NetworkSpec model;
  run_or_throw_on_all(world, [&] { model = choose_model(config); });
  PreflightErrors preflight(world, log);
  return assemble(world, config, {.model = &model}, preflight, log);
}

Assembly assemble_for(World& world, const RunConfig& config, const EvaluationData& evaluation, const Log& log) {
  NetworkSpec model;
  run_or_throw_on_all(world, [&] { model = parse_model(evaluation.state.model, "the checkpoint's model"); });
  DataRequest request = data_request(config);
  request.images = evaluation.images;
  request.allow_unlabelled = !evaluation.needs_labels;
  request.allow_untrained_labels = true;
  request.allow_non_utf8_names = true;
  request.from_checkpoint = !evaluation.data_was_given;
  PreflightErrors preflight(world, log);
  return assemble_from(
      world, config, {.checkpoint = &evaluation.state, .model = &model, .request = request, .evaluation = &evaluation},
      preflight, log);
}

std::unique_ptr<World> make_world() { return started_by_launcher() ? make_mpi_world() : make_solo_world(); }

}  // namespace tutti
