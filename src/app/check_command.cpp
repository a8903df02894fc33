#include "tutti/base/text.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/watch/stall_watch.hpp"

#include "commands.hpp"
#include "option_table.hpp"
#include "output.hpp"
#include "preflight/findings.hpp"
#include "preflight/gpus.hpp"
#include "preflight/host.hpp"
#include "preflight/out_folder.hpp"
#include "processors.hpp"
#include "run_config.hpp"
#include "run_folder.hpp"
#include "run_reports.hpp"
#include "run_start.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace tutti {
namespace {

class Check {
 public:
  Check(World& world, const Invocation& invocation, const Findings& before)
      : world_(world), hosts_(all_gather_text(world, world.host())), findings_(before), config_(invocation.run) {
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
  void check_gpus_of_hosts();
  void check_memory_of_hosts(PreflightReporter& preflight);
  std::int64_t saves_left() const;
  std::string ready_text() const;

  World& world_;
  Hosts hosts_;
  Findings findings_;
  RunConfig config_;
  RunStart start_;
  Assembly assembly_;
  RunNeeds needs_;  // zeros if the run could not be assembled
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

void Check::check_gpus_of_hosts() {
  GpuFacts facts = gpu_facts(config_.processor.device);
  facts.note = assembly_.processor.note;
  findings_.add(gather(world_, check_gpus(facts)));
  if (!assembly_.processor.warning.empty()) findings_.warn("{}", assembly_.processor.warning);
}

void Check::check_memory_of_hosts(PreflightReporter& preflight) {
  const bool on_gpu = assembly_.processor.is_gpu();
  std::optional<std::int64_t> device_free;
  findings_.attempt([&] {
    run_or_throw_on_all(world_, [&] {
      if (on_gpu) device_free = load_cuda_libraries().cuda.free_bytes(assembly_.processor.device);
    });
  });
  needs_ = check_needs(world_, assembly_, preflight, device_free);
}

void Check::run() {
  findings_.add(compare_across_ranks(world_, agreed_options(config_)));
  findings_.add(quick_checks(world_, config_));
  findings_.attempt([&] { run_or_throw_on_all(world_, [&] { validate(config_.watch); }); });
  use_options_of_rank_0();
  findings_.attempt([&] { run_or_throw_on_all(world_, [&] { refuse_without_out(config_); }); });
  findings_.attempt([&] { refuse_absent_run(world_, config_); });
  const Log silent(world_.rank(), world_.host(), true);
  PreflightReporter preflight(world_, silent, &findings_);
  start_ = find_start(world_, config_, DamagedPolicy::ignore, preflight, silent);
  assembly_ = assemble_run(world_, config_, start_, true, preflight, silent);
  config_ = assembly_.config;
  check_gpus_of_hosts();
  check_run(world_, assembly_, start_, preflight);
  if (assembly_.network) check_memory_of_hosts(preflight);
  if (!config_.output.folder.empty()) {
    findings_.add(check_out_folder(
        world_, config_,
        {.bytes = needs_.memory.estimate.checkpoint, .is_split = needs_.splits_checkpoints, .saves = saves_left()}));
  } else {
    findings_.add(check_files(world_, config_));
  }
}

// Without saves by time, whose number is not known yet.
std::int64_t Check::saves_left() const {
  if (needs_.memory.estimate.checkpoint == 0) return 0;
  const TrainerOptions& options = assembly_.config.trainer;
  const std::int64_t done = start_.resumed ? start_.resumed->state.progress.step : 0;
  const std::int64_t steps = std::max<std::int64_t>(start_.plan.steps - done, 0);
  std::int64_t every = steps;
  if (options.checkpoint_every_steps > 0) every = options.checkpoint_every_steps;
  if (options.checkpoint_every_epochs > 0) {
    every = std::max<std::int64_t>(start_.plan.epoch_steps * options.checkpoint_every_epochs, 1);
  }
  return steps == 0 ? 0 : (steps + every - 1) / every;
}

std::string Check::ready_text() const {
  const std::set<std::string> hosts(hosts_.begin(), hosts_.end());
  const Assembly& made = assembly_;
  const DatasetInfo& data = made.data.train->info();
  return fmt::format("{} on {}, {} on {}, about {:.1f} MiB per rank of {:.1f} GiB, {} with {} training images",
                     plural(hosts_.size(), "rank"), plural(hosts.size(), "host"),
                     plural(made.busy_cores(world_), "thread"), plural(made.cores.usable, "core"),
                     mebi(needs_.memory.estimate.total()), static_cast<double>(needs_.memory.max_bytes) / 0x1p30,
                     data.name, data.samples);
}

ExitStatus Check::report(const std::string& json) const {
  const std::size_t errors = findings_.count(Severity::error);
  const std::size_t warnings = findings_.count(Severity::warning);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings_.all()) {
    const bool is_error = finding.severity == Severity::error;
    if (world_.rank() == 0) fmt::print("{}: {}\n", is_error ? "error" : "warning", printable(line_of(finding, hosts_)));
    list.push_back({{"severity", is_error ? "error" : "warning"}, {"text", finding.text}, {"ranks", finding.ranks}});
  }
  if (world_.rank() == 0) {
    fmt::print("{}; {}\n",
               errors > 0 ? fmt::format("will fail: {}", plural(errors, "error")) : "ready: " + ready_text(),
               plural(warnings, "warning"));
  }
  write_json(world_, json,
             {{"verdict", errors > 0 ? "will fail" : "ready"},
              {"ranks", world_.size()},
              {"hosts", hosts_},
              {"device", assembly_.processor.all_on_gpus ? "cuda" : "cpu"},
              {"threads", assembly_.config.trainer.threads},
              {"libraries", assembly_.backend ? versions_text(*assembly_.backend, world_) : ""},
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
