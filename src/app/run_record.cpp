#include "run_record.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/process.hpp"
#include "tutti/storage/array_file.hpp"

#include "device_choice.hpp"
#include "option_table.hpp"
#include "plural.hpp"
#include "process.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <set>

namespace tutti {
namespace {

std::string slice_text(const RunConfig& config) {
  const std::int64_t whole = config.batch_size / config.parts;
  return config.batch_size % config.parts == 0 ? fmt::format("{}", whole) : fmt::format("{} or {}", whole, whole + 1);
}

const char* state_location(const ExchangeOptions& exchange) {
  switch (exchange.owners()) {
    case Owners::all:
      return "on every rank";
    case Owners::sharded:
      return "in shares";
    case Owners::root:
      return "on rank 0";
  }
  return "";
}

bool schedule_ends_with_launch(const RunConfig& config) {
  return config.schedule_epochs == kScheduleOfLaunch && config.steps > 0;
}

std::int64_t schedule_epochs(const RunConfig& config) {
  return config.schedule_epochs > 0 ? config.schedule_epochs : config.epochs;
}

std::string schedule_end_text(const RunConfig& config) {
  return schedule_ends_with_launch(config) ? fmt::format("step {}", config.steps)
                                           : fmt::format("epoch {}", schedule_epochs(config));
}

// The kind of processor in a line of versions, after the first "; ": "AVX2" of "tutti 1.0; cpu: AVX2, oneDNN 2.6.3".
std::string processor_in(const std::string& versions) {
  const std::size_t device = versions.find("; ");
  const std::size_t begin = versions.find(": ", device);
  if (device == std::string::npos || begin == std::string::npos) return {};
  return versions.substr(begin + 2, versions.find_first_of(",;", begin) - begin - 2);
}

}  // namespace

std::string moved_schedule_text(const RunConfig& config, const LoadedCheckpoint& resumed, const RateAtResume& rate) {
  const RunConfig before = merge_for_resume({}, {}, resumed.state.configuration, resumed.path);
  if (config.schedule != Schedule::cosine || schedule_end_text(config) == schedule_end_text(before)) return {};
  const bool is_over = resumed.state.progress.epoch >= schedule_epochs(before);
  const bool would_stop = config.min_lr == 0 && config.epochs > schedule_epochs(before);
  const bool can_keep = !schedule_ends_with_launch(before) && !is_over && !would_stop;
  return fmt::format(
      "the cosine schedule ends at {} now, not at {}, so the learning rate jumps from {:.3g} to {:.3g}; {}",
      schedule_end_text(config), schedule_end_text(before), rate.before, rate.now,
      can_keep ? fmt::format("--schedule-epochs {} avoids that", schedule_epochs(before))
               : fmt::format("for a schedule of its own, start a new run with --init-from {}", resumed.path));
}

std::string late_schedule_text(const RunConfig& config) {
  if (config.schedule != Schedule::cosine || config.min_lr == 0 || schedule_epochs(config) >= config.epochs) return {};
  return fmt::format("the cosine schedule ends at {}: the learning rate is {:g} from there to epoch {}",
                     schedule_end_text(config), config.min_lr, config.epochs);
}

void log_start(const Assembly& assembly, World& world, const Trainer& trainer, const Log& log) {
  const auto hosts = all_gather_text(world, world.host());
  const auto num_hosts = static_cast<std::int64_t>(std::set<std::string>(hosts.begin(), hosts.end()).size());
  const RunConfig& config = assembly.config;
  const DatasetInfo& data = assembly.data.train->info();
  const std::int64_t test_samples = assembly.data.test ? assembly.data.test->info().samples : 0;
  log.note(versions_text(*assembly.backend, world));
  log.note(fmt::format(
      "{} on {}, {} of {} cores usable here, {} a part{}", plural(world.size(), "rank"), plural(num_hosts, "host"),
      assembly.cores.usable, assembly.cores.present, plural(config.threads, "thread"),
      trainer.workers() > 1 ? fmt::format(", {} parts of a rank side by side", trainer.workers()) : ""));
  log.note(fmt::format("batch {} = {} of {} images, exchange {} ({}), optimizer state {}", config.batch_size,
                       plural(config.parts, "part"), slice_text(config), name_of(*config.exchange),
                       assembly.communicator->description(), state_location(assembly.options.exchange)));
  const Shape& image = assembly.options.recipe.image;
  const std::string from =
      image == data.image ? "" : fmt::format(" from {}", data.sizes_differ() ? "several sizes" : data.image.text());
  log.note(fmt::format("{}: {} training and {} test images of {}{}, {} classes", data.name, data.samples, test_samples,
                       image.text(), from, data.classes));
  if (test_samples == 0) log.note("no test set: --validation-ratio 0.1 would hold one out, --test-data names another");
  if (world.rank() == 0 && config.last_batch == LastBatch::keep && data.samples < config.batch_size) {
    log.warn(
        fmt::format("--batch-size {} is more than {}: every step trains on all of them; a smaller --batch-size "
                    "makes more steps an epoch",
                    config.batch_size, plural(data.samples, "training image")));
  }
  log.note(fmt::format("{}: {} parameters, {:.2f} million multiply-adds an image, {} planned",
                       assembly.network->spec().name, assembly.network->layout().parameters(),
                       static_cast<double>(assembly.network->multiply_adds()) / 1e6,
                       plural(trainer.planned_steps(), "step")));
  const std::size_t data_bytes =
      assembly.data.train->resident_bytes() + (assembly.data.test ? assembly.data.test->resident_bytes() : 0);
  log.note(fmt::format("memory about {:.0f} MiB of network a rank and {:.0f} MiB of data a host",
                       static_cast<double>(trainer.memory_bytes()) / 0x1p20, static_cast<double>(data_bytes) / 0x1p20));
  if (config.out.empty()) return;
  log.note(fmt::format("checkpoints in {}/checkpoints: {}; {} kept{}", config.out,
                       checkpoint_every_text(*config.checkpoint_every),
                       config.keep_checkpoints == 0 ? "all" : fmt::format("the newest {}", config.keep_checkpoints),
                       config.keep_best && config.keep_checkpoints != 0 ? ", and that of the best evaluation" : ""));
}

std::string run_record(const Assembly& assembly, const World& world, const std::vector<std::string>& words,
                       std::int64_t steps) {
  const RunConfig& config = assembly.config;
  nlohmann::ordered_json record{{"event", "run"},
                                {"command_line", words},
                                {"version", version()},
                                {"libraries", versions_text(*assembly.backend, world)},
                                {"device", assembly.backend->description()},
                                {"exchange", name_of(*config.exchange)},
                                {"optimizer_state", state_location(assembly.options.exchange)},
                                {"communicator", assembly.communicator->description()},
                                {"ranks", world.size()},
                                {"parts", config.parts},
                                {"threads", config.threads},
                                {"oversubscribed", !has_room_for(assembly.cores, world, config.threads)},
                                {"seed", config.seed},
                                {"model", assembly.network->spec().name},
                                {"parameters", assembly.network->layout().parameters()},
                                {"data", config.data},
                                {"data_digest", digest_text(assembly.data_digest)},
                                {"train_samples", assembly.data.train->info().samples},
                                {"test_samples", assembly.data.test ? assembly.data.test->info().samples : 0},
                                {"batch_size", config.batch_size},
                                {"optimizer", name_of(config.optimizer)},
                                {"lr", config.lr},
                                {"warmup_epochs", config.warmup_epochs},
                                {"momentum", config.momentum},
                                {"weight_decay", config.weight_decay},
                                {"host", world.host()},
                                {"startup_seconds", seconds_since_process_start()},
                                {"step", steps}};
  if (!config.rehearse.empty()) record["rehearse"] = config.rehearse;
  return record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ProcessorKinds processor_kinds(const Backend& backend, const std::optional<LoadedCheckpoint>& resumed) {
  ProcessorKinds kinds{.mine = processor_in("; " + backend.description())};
  if (resumed) {
    kinds.of_checkpoint = processor_in(resumed->state.versions);
    kinds.checkpoint = resumed->path;
  }
  return kinds;
}

std::string versions_text(const Backend& backend, const World& world) {
  return fmt::format("tutti {}; {}; {}; HDF5 {}", version(), backend.description(), world.description(),
                     array_library_version());
}

}  // namespace tutti
