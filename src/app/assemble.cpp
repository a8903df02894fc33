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

// How many parts of a rank its share of the cores has room for, and how many cores the host's ranks then keep busy.
int parts_side_by_side(const RunConfig& config, const World& world, const Cores& cores) {
  const std::int64_t share = std::min(cores.mine, cores.usable / world.local_size());
  return static_cast<int>(std::max<std::int64_t>(1, share / config.threads));
}

std::int64_t busy_cores(const RunConfig& config, const World& world, const Cores& cores) {
  const PartPlan plan = PartPlan::chosen(config.part_map->parts_by_rank, static_cast<int>(config.parts), world.size());
  const int workers = std::min(parts_side_by_side(config, world, cores), std::ranges::max(plan.parts_by_rank()));
  return workers * config.threads * world.local_size();
}

void log_idle_cores(const RunConfig& config, const World& world, const Cores& cores, const Log& log) {
  const std::int64_t busy = busy_cores(config, world, cores);
  if (world.rank() == 0 && busy < cores.usable) {
    log.note(fmt::format("{} of {} usable cores stay idle: more ranks, --parts or --threads would use them",
                         cores.usable - busy, cores.usable));
  } else if (world.rank() == 0 && busy < cores.present && cores.usable < cores.present) {
    log.note(fmt::format("the launcher bound this host's ranks to {} of its {} cores: mpirun --bind-to none frees them",
                         cores.usable, cores.present));
  }
}

// Larger sets are read piece by piece, so that the system keeps room for caching what it reads.
std::size_t most_resident_bytes(const RunConfig& config) {
  if (config.resident_mib > 0) return static_cast<std::size_t>(config.resident_mib) << 20;
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes) / 4 : 0;
}

void refuse_labels(const TrainedOn& trained, const DatasetInfo& data) {
  const std::string fault = fault_of_labels(data, trained);
  if (fault.empty()) return;
  throw Error(ErrorSource::input, fmt::format("{}: {} predict labels the images without them", fault, program_call()));
}

// Sizes are fitted as the training's test images were.
void fit_data(Assembly& assembly, const TrainedOn& trained, bool needs_labels) {
  const std::int64_t height = trained.image[1];
  const std::int64_t width = trained.image[2];
  for (auto* const set : {&assembly.data.train, &assembly.data.test}) {
    if (!*set) continue;
    if (needs_labels) refuse_labels(trained, (*set)->info());
    *set = fit_to(trained, std::move(*set), assembly.data.notes);
    const DatasetInfo& info = (*set)->info();
    if (assembly.config.image_size != 0 || (info.image[1] == height && info.image[2] == width)) continue;
    if (height != width) {
      throw Error(ErrorSource::input, fmt::format("the images of {} are not {} x {} as the network's are, which are no "
                                                  "squares that others could be fitted to",
                                                  info.name, height, width));
    }
    assembly.config.image_size = height;
    const std::string sizes =
        info.sizes_differ() ? "different sizes" : fmt::format("{} x {}", info.image[1], info.image[2]);
    assembly.data.notes.push_back(
        fmt::format("{}: {}, fitted to {} x {} for the network", info.name, sizes, height, width));
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

TrainerContext Assembly::parts() const {
  return {.backend = *backend,
          .communicator = *communicator,
          .network = *network,
          .train = *data.train,
          .test = data.test.get()};
}

EstimateRequest memory_request(const Assembly& assembly, const World& world, const std::optional<FileShare>& share) {
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
  std::int64_t scheduled = 0;  // that a schedule of its own length covers; else all
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
  Findings mine = check_parts(assembly.config, !assembly.network->layout().statistics().empty());
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

void settle_ranks(World& world, Assembly& assembly) {
  const bool all_on_gpus = assembly.processor.all_on_gpus;
  // Where GPUs compute, a rank's one thread feeds its own.
  const int fair_threads = all_on_gpus ? 1 : fewest_cores_per_rank(world, assembly.cores);
  // Large enough that a GPU's steps are recorded in few pieces.
  if (assembly.config.bucket_mib == 0) assembly.config.bucket_mib = all_on_gpus ? 16 : 4;
  run_agreed(world, [&] { settle_parts(assembly.config, world.size(), fair_threads); });
}

void settle_data(World& world, Assembly& assembly, const DataRequest& request) {
  const OwnData* own = nullptr;
  run_agreed(world, [&] { own = request.images.empty() ? find_own_data(assembly.config) : nullptr; });
  const bool is_own = world.agree(own != nullptr);
  if (!is_own) assembly.block = load_once(world, request);
  run_agreed(world, [&] {
    assembly.data = is_own ? open_own(*own, request.unlabelled_too) : open_loaded(assembly.block.bytes());
    assembly.data_digest = assembly.data.train->digest();
  });
}

void settle_network(World& world, Assembly& assembly, const NetworkSpec& model) {
  const bool on_gpu = assembly.processor.is_gpu();
  run_agreed(world, [&] {
    const DatasetInfo& info = assembly.data.train->info();
    assembly.options = resolve_options(assembly.config, model);
    assembly.options.recipe = make_recipe(recipe_request(assembly.config), *assembly.data.train);
    // Whoever goes on from a checkpoint, with whichever data, normalises as it was trained.
    if (assembly.config.normalize == "auto") {
      assembly.config.normalize = normalize_text(assembly.options.recipe.statistics);
    }
    assembly.options.side_by_side = on_gpu ? 1 : parts_side_by_side(assembly.config, world, assembly.cores);
    assembly.options.readers = budget_readers(world, assembly.cores, assembly.busy_cores(world) / world.local_size());
    assembly.network = std::make_unique<Network>(model, assembly.options.recipe.image, info.classes);
  });
}

std::vector<Claim> assembly_claims(const Assembly& assembly) {
  std::vector<Claim> claims = option_claims(assembly.config);
  const Dataset* test = assembly.data.test.get();
  claims.push_back(
      {"network", digest_text(hash64(model_text(assembly.network->spec()))), "give all ranks the same --model"});
  claims.push_back({"training data", digest_text(assembly.data_digest), "give all ranks the same --data"});
  claims.push_back(
      {"test data", test == nullptr ? "none" : digest_text(test->digest()), "give all ranks the same test set"});
  const std::string same_files = "copy the images anew, so that all hosts have the same bytes";
  for (const auto& [which, set] :
       {std::pair{"training", assembly.data.train.get()}, std::pair{"test", assembly.data.test.get()}}) {
    const auto files = set == nullptr ? std::nullopt : set->info().contents;
    if (!files) continue;
    claims.push_back(
        {fmt::format("content of {} of the {} images", files->sampled, which), digest_text(files->sample), same_files});
    if (files->whole) {
      claims.push_back({fmt::format("content of all {} images", which), digest_text(*files->whole), same_files});
    }
  }
  return claims;
}

// Data that a call names are used whole, unless they are the run's own: those are split as in the run, wherever they
// lie.
void settle_named_data(World& world, Assembly& assembly, DataRequest request, const TrainState& state) {
  const double ratio = std::exchange(request.validation_ratio, 0);
  assembly.config.validation_ratio = 0;
  settle_data(world, assembly, request);
  const bool is_own =
      ratio > 0 && is_left_of(state.data_digest, *assembly.data.train, ratio, static_cast<std::uint64_t>(request.seed));
  if (!world.agree(is_own)) return;
  request.validation_ratio = ratio;
  assembly.config.validation_ratio = ratio;
  assembly.data = {};
  settle_data(world, assembly, request);
}

struct Sources {
  const TrainState* checkpoint = nullptr;
  const NetworkSpec* model = nullptr;
  DataRequest request{};
  const AskedData* asked = nullptr;
};

bool names_data(const TrainState& checkpoint, const std::string& data) {
  RunConfig stored;
  std::set<std::string> read;
  read_config_text(checkpoint.configuration, "the checkpoint", stored, read);
  return stored.data == data;
}

void settle_all_data(World& world, Assembly& assembly, const Sources& sources) {
  if (sources.asked != nullptr && sources.asked->named) {
    settle_named_data(world, assembly, sources.request, sources.asked->state);
  } else {
    settle_data(world, assembly, sources.request);
  }
  if (sources.asked != nullptr && sources.asked->trained) {
    run_agreed(world, [&] { fit_data(assembly, *sources.asked->trained, sources.asked->needs_labels); });
  }
}

void settle_communicator(World& world, Assembly& assembly, const Log& log) {
  const bool spare_core = assembly.cores.usable > assembly.busy_cores(world);
  run_agreed(world, [&] {
    assembly.communicator = choose_communicator(world, assembly.config, assembly.processor, spare_core);
  });
  assembly.exchange_has_core = spare_core || assembly.processor.is_gpu();
  if (!assembly.processor.all_on_gpus) log_idle_cores(assembly.config, world, assembly.cores, log);
}

Assembly assemble_from(World& world, const RunConfig& config, const Sources& sources, Obstacles& obstacles,
                       const Log& log) {
  Assembly assembly;
  assembly.config = config;
  assembly.cores = count_cores(world);
  obstacles.attempt([&] { run_agreed(world, [&] { refuse_contradictions(config); }); });
  const bool has_processor = obstacles.attempt([&] { assembly.processor = choose_processor(world, config, log); });
  const bool has_ranks = obstacles.attempt([&] { settle_ranks(world, assembly); });
  if (has_processor) {
    const std::string choices = sources.checkpoint == nullptr ? "" : sources.checkpoint->choices;
    obstacles.attempt([&] { adopt_known_choices(world, config, choices, *assembly.processor.backend, log); });
  }
  const bool has_data = obstacles.attempt([&] { settle_all_data(world, assembly, sources); });
  if (sources.model != nullptr && has_ranks && has_data) {
    obstacles.attempt([&] { settle_network(world, assembly, *sources.model); });
  }
  for (const std::string& note : assembly.data.notes) log.note(note);
  if (assembly.network) obstacles.add(compare(world, assembly_claims(assembly)));
  if (has_processor && has_ranks) obstacles.attempt([&] { settle_communicator(world, assembly, log); });
  assembly.backend = std::move(assembly.processor.backend);
  return assembly;
}

}  // namespace

Assembly assemble(World& world, const RunConfig& config, const TrainingSources& sources, Obstacles& obstacles,
                  const Log& log) {
  DataRequest request = data_request(config);
  request.any_class_names = sources.checkpoint != nullptr;
  request.from_checkpoint = sources.checkpoint != nullptr && names_data(*sources.checkpoint, config.data);
  if (sources.samples_files && request.verification == Verification::start) request.verification = Verification::sample;
  return assemble_from(world, config, {.checkpoint = sources.checkpoint, .model = sources.model, .request = request},
                       obstacles, log);
}

Assembly assemble(World& world, const RunConfig& config, const Log& log) {
  NetworkSpec model;
  run_agreed(world, [&] { model = choose_model(config); });
  Obstacles obstacles(world, log);
  return assemble(world, config, {.model = &model}, obstacles, log);
}

Assembly assemble_for(World& world, const RunConfig& config, const AskedData& asked, const Log& log) {
  NetworkSpec model;
  run_agreed(world, [&] { model = parse_model(asked.state.model, "the checkpoint's model"); });
  DataRequest request = data_request(config);
  request.images = asked.images;
  request.unlabelled_too = !asked.needs_labels;
  request.any_test_labels = true;
  request.any_class_names = true;
  request.from_checkpoint = !asked.named;
  Obstacles obstacles(world, log);
  return assemble_from(world, config,
                       {.checkpoint = &asked.state, .model = &model, .request = request, .asked = &asked}, obstacles,
                       log);
}

std::unique_ptr<World> make_world() { return started_by_launcher() ? make_mpi_world() : make_solo_world(); }

}  // namespace tutti
