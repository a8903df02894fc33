#include "check_command.hpp"

#include "tutti/base/text.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/data/split_batch_sampler.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/storage/whole_file.hpp"
#include "tutti/watch/stall_watch.hpp"

#include "assemble.hpp"
#include "checkpoint_choice.hpp"
#include "option_table.hpp"
#include "own_parts.hpp"
#include "plural.hpp"
#include "preflight/agreement.hpp"
#include "preflight/brief.hpp"
#include "preflight/cards.hpp"
#include "preflight/load.hpp"
#include "preflight/machine.hpp"
#include "preflight/memory.hpp"
#include "preflight/out_folder.hpp"
#include "processors.hpp"
#include "program.hpp"
#include "resolve_options.hpp"
#include "run_folder.hpp"
#include "run_record.hpp"
#include "trained_on.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr double kMebi = 0x1p20;

class Check {
 public:
  Check(World& world, const Invocation& invocation, const Findings& before)
      : world_(world), given_(invocation.given), hosts_(all_gather_text(world, world.host())), findings_(before) {
    assembly_.config = invocation.run;
  }

  void run();
  ExitStatus tell(const std::string& json) const;

 private:
  RunConfig& config() { return assembly_.config; }
  void go_on_with_rank_0s_options();
  void look_at_checkpoint();
  bool look_at_data();
  void look_at_gpus(const ChosenProcessor& processor);
  void look_at_memory(const ChosenProcessor& processor);
  std::int64_t saves_left() const;
  std::string ready_text() const;
  void write_json(const std::string& path, const std::string& verdict) const;

  World& world_;
  std::set<std::string> given_;
  Hosts hosts_;
  Findings findings_;
  Assembly assembly_;
  Machine machine_;
  std::optional<LoadedCheckpoint> resumed_;
  std::optional<LoadedCheckpoint> weights_;  // of another run
  MemoryEstimate estimate_;                  // zeros: something stood in the way
  bool is_split_ = false;                    // of several files is each checkpoint
  std::int64_t most_memory_ = 0;
  bool on_gpus_ = false;   // all ranks
  std::string libraries_;  // empty: there is no processor to compute on
};

// So that all of them come to the same collectives from here on.
void Check::go_on_with_rank_0s_options() {
  RunConfig first;
  std::set<std::string> read;
  const bool resume = config().resume;
  const std::string facts = broadcast_text(world_, fmt::format("{:d} {}", resume, fmt::join(given_, " ")), 0);
  read_config_text(broadcast_text(world_, config_text(config()), 0), "rank 0", first, read);
  std::istringstream words(facts);
  words >> first.resume;
  given_.clear();
  for (std::string name; words >> name;) given_.insert(name);
  first.data = config().data;  // hosts may have theirs elsewhere: its digest counts
  first.test_data = config().test_data;
  first.rehearse = config().rehearse;
  first.own = config().own;
  config() = first;
}

void Check::look_at_checkpoint() {
  if (config().out.empty()) return;
  findings_.attempt([&] {
    const CheckpointStore store(config().out + "/checkpoints");
    resumed_ = store.newest(world_, Log(world_.rank(), world_.host(), true), Damaged::left);
    if (!resumed_) return;
    run_agreed(world_, [&] {
      config() = merge_for_resume(config(), given_, resumed_->state.configuration, resumed_->path);
      drop_stored_part_map(config(), given_, world_.size());
    });
  });
}

void Check::look_at_gpus(const ChosenProcessor& processor) {
  if (config().device == "cpu") return;
  findings_.add(gather(world_, judge_cards({.device = config().device,
                                            .note = processor.note,
                                            .has_card = machine_.has_nvidia_card(),
                                            .has_driver = machine_.has_nvidia_driver(),
                                            .inventory = look_for_gpus(config().device)})));
}

void Check::look_at_memory(const ChosenProcessor& processor) {
  const bool on_gpu = processor.is_gpu();
  const std::size_t state_bytes = most_state_bytes(*assembly_.network);
  const auto share = file_share(world_, state_bytes);
  is_split_ = !world_.agree(!share || share->files == 1);
  std::optional<std::int64_t> device_free;
  findings_.attempt([&] {
    run_agreed(world_, [&] {
      if (on_gpu) device_free = load_cuda_libraries().cuda.free_bytes(processor.device);
    });
  });
  JobMemory job =
      judge_job_memory(world_, memory_request(assembly_, world_, config().out.empty() ? std::nullopt : share), machine_,
                       on_gpu, device_free);
  estimate_ = job.estimate;
  most_memory_ = job.most;
  findings_.add(job.findings);
}

// Looks further into the data than a start does.
bool Check::look_at_data() {
  const bool has_data = findings_.attempt([&] {
    DataRequest request = data_request(config());
    if (request.verification == Verification::start) request.verification = Verification::sample;
    request.any_class_names = resumed_.has_value();
    settle_data(world_, assembly_, request);
  });
  if (!resumed_ || !has_data) return has_data;
  findings_.attempt([&] {
    DataDigests digests = digests_of(assembly_.data);
    findings_.add(refuse_other_data(*resumed_, config(), digests));
  });
  return has_data;
}

void Check::run() {
  std::vector<Claim> options = option_claims(config());
  findings_.add(compare(world_, options));
  findings_.add(preflight_in_brief(world_, config()));
  findings_.attempt([&] {
    run_agreed(world_, [&] {
      refuse_unfit({.timeout_seconds = config().stall_timeout, .interface = config().watch_interface});
    });
  });
  go_on_with_rank_0s_options();
  findings_.attempt([&] { run_agreed(world_, [&] { refuse_without_out(config()); }); });
  if (config().resume) look_at_checkpoint();
  const bool can_read = findings_.attempt([&] { run_agreed(world_, [&] { refuse_unknown_words(config()); }); });

  std::optional<NetworkSpec> model;
  const Log silent(world_.rank(), world_.host(), true);
  findings_.attempt([&] {
    const bool begins_with_weights = !resumed_ && !config().init_from.empty();
    const bool has_own = begins_with_weights && !given_.contains("model");
    run_agreed(world_, [&] {
      if (resumed_) model = parse_model(resumed_->state.model, "the checkpoint's model");
      if (!resumed_ && !has_own) model = choose_model(config());
    });
    if (!begins_with_weights) return;
    weights_ = load_named_checkpoint(world_, config().init_from, silent);
    run_agreed(world_, [&] {
      if (has_own) model = model_of(*weights_, config());
    });
  });
  assembly_.cores = count_cores(world_);
  ChosenProcessor processor;
  const bool has_processor =
      can_read && findings_.attempt([&] { processor = choose_processor(world_, config(), silent); });
  if (can_read) look_at_gpus(processor);
  const bool has_ranks = can_read && findings_.attempt([&] { settle_ranks(world_, assembly_, processor.all_on_gpus); });
  const bool has_data = look_at_data();
  const bool has_network = model && has_ranks && has_data &&
                           findings_.attempt([&] { settle_network(world_, assembly_, *model, processor.is_gpu()); });
  if (has_network) {
    findings_.add(compare(world_, assembly_claims(assembly_)));
    findings_.add(judge_load(world_, assembly_));
    findings_.add(judge_weights(weights_, config(), *assembly_.network, assembly_.data.train->info()));
    look_at_memory(processor);
  } else if (can_read && model) {
    findings_.attempt([&] { run_agreed(world_, [&] { resolve_options(config(), *model); }); });
  }
  if (has_processor && has_ranks) {
    on_gpus_ = processor.all_on_gpus;
    libraries_ = versions_text(*processor.backend, world_);
    findings_.add(judge_processors(world_, config(), processor_kinds(*processor.backend, resumed_)));
    findings_.attempt([&] { run_agreed(world_, [&] { choose_communicator(world_, config(), processor, true); }); });
  }
  if (!config().out.empty()) {
    findings_.add(judge_out_folder(world_, config(),
                                   {.bytes = estimate_.checkpoint, .is_split = is_split_, .saves = saves_left()}));
  } else {
    findings_.add(judge_files(world_, config()));
  }
}

// Besides those by the clock, which nobody knows beforehand.
std::int64_t Check::saves_left() const {
  if (estimate_.checkpoint == 0) return 0;
  const TrainerOptions& options = assembly_.options;
  const SplitBatchSampler schedule(assembly_.data.train->info().samples, options.batch_size, 1, 0, options.last_batch);
  std::int64_t steps = schedule.steps_before(options.epochs);
  if (options.steps > 0) steps = std::min(steps, options.steps);
  if (resumed_) steps = std::max<std::int64_t>(steps - resumed_->state.progress.step, 0);
  std::int64_t every = steps;
  if (options.checkpoint_every_steps > 0) every = options.checkpoint_every_steps;
  if (options.checkpoint_every_epochs > 0) {
    every = std::max<std::int64_t>(schedule.steps_before(options.checkpoint_every_epochs), 1);
  }
  return steps == 0 ? 0 : (steps + every - 1) / every;
}

std::string Check::ready_text() const {
  const std::set<std::string> hosts(hosts_.begin(), hosts_.end());
  const Assembly& made = assembly_;
  const DatasetInfo& data = made.data.train->info();
  return fmt::format("{} on {}, {} on {}, about {:.1f} MiB a rank of {:.1f} GiB, {} with {} training images",
                     plural(hosts_.size(), "rank"), plural(hosts.size(), "host"),
                     plural(made.busy_cores(world_), "thread"), plural(made.cores.usable, "core"),
                     static_cast<double>(estimate_.together()) / kMebi, static_cast<double>(most_memory_) / 0x1p30,
                     data.name, data.samples);
}

void Check::write_json(const std::string& path, const std::string& verdict) const {
  run_agreed(world_, [&] {
    if (world_.rank() != 0 || path.empty()) return;
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Finding& finding : findings_.all()) {
      const bool doomed = finding.severity == Severity::doomed;
      list.push_back({{"severity", doomed ? "doomed" : "warning"}, {"text", finding.text}, {"ranks", finding.ranks}});
    }
    const std::string json = nlohmann::ordered_json{{"verdict", verdict},
                                                    {"ranks", world_.size()},
                                                    {"hosts", hosts_},
                                                    {"device", on_gpus_ ? "cuda" : "cpu"},
                                                    {"threads", assembly_.config.threads},
                                                    {"libraries", libraries_},
                                                    {"bytes_per_rank", estimate_.together()},
                                                    {"checkpoint_bytes", estimate_.checkpoint},
                                                    {"findings", list}}
                                 .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
                             "\n";
    write_whole(path, std::as_bytes(std::span(json)));
  });
}

ExitStatus Check::tell(const std::string& json) const {
  const std::size_t doomed = findings_.count(Severity::doomed);
  const std::size_t warnings = findings_.count(Severity::warning);
  if (world_.rank() == 0) {
    for (const Finding& finding : findings_.all()) {
      fmt::print("{}: {}\n", finding.severity == Severity::doomed ? "doomed" : "warning",
                 printable(line_of(finding, hosts_)));
    }
    fmt::print("{}; {}\n", doomed > 0 ? fmt::format("doomed: {}", plural(doomed, "finding")) : "ready: " + ready_text(),
               plural(warnings, "warning"));
  }
  write_json(json, doomed > 0 ? "doomed" : "ready");
  return doomed > 0 ? ExitStatus::answer_is_no : ExitStatus::done;
}

ExitStatus check_from(World& world, const Invocation& invocation, const Findings& before) {
  Check check(world, invocation, before);
  check.run();
  return check.tell(invocation.json);
}

}  // namespace

ExitStatus check_command(World& world, const Invocation& invocation) { return check_from(world, invocation, {}); }

int check_alone(const Invocation& invocation, const Error& failure) {
  if (launcher_rank() != 0) return static_cast<int>(ExitStatus::done);  // the first one's status is the job's
  Findings found;
  found.doom(failure.source(), failure.describe());
  const auto world = make_solo_world();
  return run_guarded(*world, {}, [&] { return check_from(*world, invocation, found); });
}

}  // namespace tutti
