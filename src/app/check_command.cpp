#include "tutti/base/text.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/watch/stall_watch.hpp"

#include "commands.hpp"
#include "option_table.hpp"
#include "output.hpp"
#include "plan_choices.hpp"
#include "preflight/agreement.hpp"
#include "preflight/host.hpp"
#include "preflight/input.hpp"
#include "preflight/out_folder.hpp"
#include "processors.hpp"
#include "run_config.hpp"
#include "run_reports.hpp"
#include "run_start.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <string>

namespace tutti {
namespace {

class Check {
 public:
  Check(World& world, const Invocation& invocation, const Findings& before)
      : world_(world), findings_(before), config_(invocation.run) {
    Findings mine;
    for (const std::string& problem : invocation.problems) mine.fail(ErrorSource::usage, "{}", problem);
    const Findings problems = gather(world, mine);
    for (Finding problem : problems.all()) {
      if (std::ssize(problem.ranks) == world.size())
        problem.ranks.clear();  // all ranks were started with these options
      findings_.add(problem);
    }
  }

  void run();
  ExitStatus report(const std::string& json) const;

 private:
  void use_options_of_rank_0();
  void prepare(const Log& silent);
  void check_prepared();
  const std::optional<LoadedCheckpoint>& resumed() const { return start_ ? start_->resumed : not_resumed_; }
  // Null if none could be chosen.
  const ChosenProcessor* processor() const { return run_ ? &run_->processor : processor_ ? &*processor_ : nullptr; }
  std::int64_t saves_left() const;
  std::string ready_text() const;

  World& world_;
  JobFacts facts_;
  Findings findings_;
  RunConfig config_;
  // Empty: it could not be found or made.
  std::optional<RunStart> start_;
  std::optional<ChosenProcessor> processor_;  // until the run has it
  std::optional<PreparedRun> run_;
  std::optional<Communicators> communicators_;
  RunPlan plan_;    // zeros if the data do not fill a batch
  RunNeeds needs_;  // zeros if the run could not be prepared
  const std::optional<LoadedCheckpoint> not_resumed_;
};

// Makes all ranks call the same collectives from here on.
void Check::use_options_of_rank_0() {
  const bool resume = config_.output.resume;
  const std::string facts = broadcast_text(world_, fmt::format("{:d} {}", resume, fmt::join(config_.given, " ")), 0);
  RunConfig first = read_config_text(broadcast_text(world_, config_text(config_), 0), "rank 0");
  std::istringstream words(facts);
  words >> first.output.resume;
  first.given.clear();
  for (std::string name; words >> name;) first.given.insert(name);
  first.data.train = config_.data.train;  // the path may differ between hosts, since the digests are compared
  first.data.test = config_.data.test;
  first.rehearse = config_.rehearse;
  first.extensions = config_.extensions;
  config_ = first;
}

void Check::run() {
  findings_.add(compare_across_ranks(world_, agreed_options(config_)));
  findings_.add(quick_checks(world_, config_));
  findings_.attempt([&] { run_or_throw_on_all(world_, [&] { validate(config_.watch); }); });
  use_options_of_rank_0();
  facts_ = find_facts(world_, config_.processor.device);
  findings_.attempt([&] { run_or_throw_on_all(world_, [&] { refuse_without_out(config_); }); });
  findings_.attempt([&] { refuse_absent_run(world_, config_); });
  const Log silent(world_.rank(), world_.host(), true);
  auto resumed = findings_.attempt([&] { return find_resumed(world_, config_, DamagedPolicy::ignore, silent); });
  start_ = findings_.attempt(
      [&] { return make_start(world_, config_, resumed ? std::move(*resumed) : std::nullopt, silent); });
  prepare(silent);
  check_prepared();
  if (config_.output.folder.empty()) return findings_.add(check_files(world_, config_));
  findings_.add(check_out_folder(
      world_, config_,
      {.bytes = needs_.memory.estimate.checkpoint, .is_split = needs_.splits_checkpoints, .saves = saves_left()}));
}

// As assemble(), as far as possible.
void Check::prepare(const Log& silent) {
  const Cores& cores = facts_.cores;
  config_.processor.gpu.search_plans = false;  // too slow for a few steps
  findings_.attempt([&] { run_or_throw_on_all(world_, [&] { refuse_contradictions(config_); }); });
  processor_ = findings_.attempt([&] { return choose_processor(world_, facts_.gpus, config_.processor, silent); });
  if (processor_) config_.processor.precision = processor_->precision;
  const bool is_resolved =
      findings_.attempt([&] { resolve_parallelism(world_, cores, processor_ && processor_->all_on_gpus, config_); });
  if (processor_) {
    findings_.attempt([&] {
      adopt_known_choices(world_, config_.processor, resumed() ? resumed()->state.choices : "", *processor_->backend,
                          silent);
    });
  }
  config_.data = data_request_of(config_, resumed());
  // A start takes no time to decode a sample of the images.
  if (config_.data.verification == Verification::start) config_.data.verification = Verification::sample;
  auto opened = findings_.attempt([&] { return open_run_data(world_, facts_.hosts, config_); });
  if (!opened) return;
  DataDigests digests = digests_of(opened->data);
  if (start_ && processor_ && is_resolved) {
    auto network = findings_.attempt(
        [&] { return make_network(world_, cores, *processor_, opened->data, sources_of(*start_), config_); });
    if (network) run_ = PreparedRun{std::move(*opened), config_, cores, std::move(*processor_), std::move(*network)};
  }
  if (run_) {
    findings_.add(check_agreement(world_, *run_));
    communicators_ = findings_.attempt([&] { return connect(world_, *run_, silent); });
    findings_.attempt([&] {
      run_or_throw_on_all(world_, [&] { plan_ = plan_run(config_.trainer, run_->data.train->info().samples); });
    });
  }
  if (!resumed()) return;
  const auto warnings = findings_.attempt([&] { return refuse_other_data(*resumed(), config_, digests); });
  if (warnings) findings_.add(*warnings);
}

void Check::check_prepared() {
  const ChosenProcessor* const chosen = processor();
  findings_.add(gather(world_, check_gpus(facts_.gpus, chosen == nullptr ? "" : chosen->note)));
  if (chosen != nullptr && !chosen->warning.empty()) findings_.warn("{}", chosen->warning);
  if (run_) findings_.add(check_run(world_, *run_, *start_, plan_, Severity::error));
  if (chosen != nullptr) findings_.add(check_processors(world_, config_, *chosen->backend, resumed()));
  if (!run_) return;
  std::optional<std::int64_t> device_free;
  findings_.attempt([&] {
    run_or_throw_on_all(world_, [&] {
      if (chosen->is_gpu()) device_free = load_cuda_libraries().cuda.free_bytes(chosen->device);
    });
  });
  needs_ = check_needs(world_, *run_, device_free);
  findings_.add(needs_.memory.findings);
  if (!communicators_ || findings_.count(Severity::error) > 0) return;
  findings_.attempt([&] { findings_.add(check_input(world_, *run_, *communicators_->communicator)); });
}

// Without saves by time, whose number is not known yet.
std::int64_t Check::saves_left() const {
  if (needs_.memory.estimate.checkpoint == 0) return 0;
  const TrainerOptions& options = config_.trainer;
  const std::int64_t done = resumed() ? resumed()->state.progress.step : 0;
  const std::int64_t steps = std::max<std::int64_t>(plan_.steps - done, 0);
  std::int64_t every = steps;
  if (options.checkpoint_every_steps > 0) every = options.checkpoint_every_steps;
  if (options.checkpoint_every_epochs > 0) {
    every = std::max<std::int64_t>(plan_.epoch_steps * options.checkpoint_every_epochs, 1);
  }
  return steps == 0 ? 0 : (steps + every - 1) / every;
}

std::string Check::ready_text() const {
  const std::set<std::string> hosts(facts_.hosts.begin(), facts_.hosts.end());
  const DatasetInfo& data = run_->data.train->info();
  return fmt::format("{} on {}, {} on {}, about {:.1f} MiB per rank of {:.1f} GiB, {} with {} training images",
                     plural(facts_.hosts.size(), "rank"), plural(hosts.size(), "host"),
                     plural(run_->busy_cores(world_), "thread"), plural(run_->cores.usable, "core"),
                     mebi(needs_.memory.estimate.total()), static_cast<double>(needs_.memory.max_bytes) / 0x1p30,
                     data.name, data.samples);
}

ExitStatus Check::report(const std::string& json) const {
  const std::size_t errors = findings_.count(Severity::error);
  const std::size_t warnings = findings_.count(Severity::warning);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings_.all()) {
    const bool is_error = finding.severity == Severity::error;
    if (world_.rank() == 0)
      fmt::print("{}: {}\n", is_error ? "error" : "warning", printable(line_of(finding, facts_.hosts)));
    list.push_back({{"severity", is_error ? "error" : "warning"}, {"text", finding.text}, {"ranks", finding.ranks}});
  }
  if (world_.rank() == 0) {
    fmt::print("{}; {}\n",
               errors > 0 ? fmt::format("will fail: {}", plural(errors, "error")) : "ready: " + ready_text(),
               plural(warnings, "warning"));
  }
  const ChosenProcessor* const chosen = processor();
  write_json(world_, json,
             {{"verdict", errors > 0 ? "will fail" : "ready"},
              {"ranks", world_.size()},
              {"hosts", facts_.hosts},
              {"device", chosen != nullptr && chosen->all_on_gpus ? "cuda" : "cpu"},
              {"threads", config_.trainer.threads},
              {"libraries", chosen == nullptr ? "" : versions_text(*chosen->backend, world_)},
              {"bytes_per_rank", needs_.memory.estimate.total()},
              {"checkpoint_bytes", needs_.memory.estimate.checkpoint},
              {"findings", list}});
  return errors > 0 ? ExitStatus::negative_result : ExitStatus::done;
}

ExitStatus check_from(World& world, const Invocation& invocation, const Findings& before) {
  Check check(world, invocation, before);
  check.run();
  return check.report(invocation.json);
}

}  // namespace

ExitStatus check_command(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  return check_from(world, invocation, {});
}

int check_alone(const Invocation& invocation, const Error& failure) {
  if (launcher_rank() != 0) return static_cast<int>(ExitStatus::done);  // the job ends with the status of rank 0
  Findings found;
  found.fail(failure.source(), "{}", failure.describe());
  const auto world = make_solo_world();
  return run_and_report_errors(*world, {}, [&] { return check_from(*world, invocation, found); });
}

}  // namespace tutti
