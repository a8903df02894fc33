#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/base/unique_handle.hpp"

#include "commands.hpp"
#include "output.hpp"
#include "processors.hpp"
#include "screen.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <system_error>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;
using Shipped = std::map<std::string, std::vector<std::uint64_t>>;  // digests, by kind of processor

constexpr std::size_t kGpuBytes = 4 * kScreenedBytes;  // two of them are more than the caches of a GPU
constexpr double kSlowFactor = 1.5;                    // slower than the median

std::vector<ScreenPlan> cores_of(const World& world, Device device) {
  std::vector<ScreenPlan> cores;
  if (device == Device::cuda) return cores;
  for (const int core : allowed_cores()) {
    cores.push_back({.host = world.host(),
                     .name = fmt::format("core {}", core),
                     .core = core,
                     .make_backend = [](Precision precision) { return make_cpu_backend(precision); }});
  }
  if (!cores.empty()) return cores;
  throw Error(ErrorSource::internal, "the system does not say on which cores this process may run");
}

// Engines are not chosen by timing, so that GPUs of one model use the same.
std::vector<ScreenPlan> gpus_of(const World& world, Device device, const Log& log) {
  std::vector<ScreenPlan> gpus;
  const GpuFacts facts = gpu_facts(device);
  if (misses_gpus(facts) || (device == Device::cuda && facts.inventory.devices.empty())) {
    throw Error(ErrorSource::input,
                fmt::format("CUDA shows {} of the GPUs of {}: {}; repair the driver, or choose --device cpu",
                            facts.inventory.devices.empty() ? "none" : "not all", world.host(),
                            facts.inventory.unavailable_reason));
  }
  for (std::size_t i = 0; i < facts.inventory.devices.size(); ++i) {
    const auto make = [i, log](Precision precision) {
      return load_cuda_libraries().cuda.make_backend({.device = static_cast<int>(i),
                                                      .precision = precision,
                                                      .search_plans = false,
                                                      .use_graphs = false,
                                                      .warn = [log](const std::string& text) { log.warn(text); }});
    };
    gpus.push_back({.host = world.host(),
                    .name = fmt::format("GPU {} ({})", i, facts.inventory.devices[i].uuid),
                    .memory_bytes = kGpuBytes,
                    .make_backend = make});
  }
  return gpus;
}

// Removes what a lower rank of the same host screens, and numbers the others over all ranks. Returns the number of all.
// Collective.
int number_units(World& world, std::vector<ScreenPlan>& cores, std::vector<ScreenPlan>& gpus) {
  std::string mine;
  for (const auto* plans : {&cores, &gpus}) {
    for (const ScreenPlan& plan : *plans) mine += fmt::format("{} {}\n", plan.host, plan.name);
  }
  const auto all = all_gather_text(world, mine);
  std::set<std::string> taken;
  int first = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank == world.rank()) {
      for (auto* plans : {&cores, &gpus}) {
        std::erase_if(*plans, [&](const ScreenPlan& plan) { return taken.contains(plan.host + " " + plan.name); });
      }
      first = static_cast<int>(taken.size());
    }
    for (const std::string& unit : lines_of(all[static_cast<std::size_t>(rank)])) taken.insert(unit);
  }
  for (auto* plans : {&cores, &gpus}) {
    for (ScreenPlan& plan : *plans) plan.number = first++;
  }
  return static_cast<int>(taken.size());
}

std::vector<Fault> faults_of(const std::string& rehearsal, int units) {
  if (rehearsal.empty()) return {};
  constexpr std::int64_t kAnyStep = 1'000'000'000;
  const auto faults =
      plan_faults(rehearsal, {.ranks = units, .steps = {1, kAnyStep}, .tensors = {}, .layers = screened_layers()});
  if (std::ranges::all_of(faults, [](const Fault& fault) { return fault.kind == FaultKind::wrong; })) return faults;
  throw Error(ErrorSource::usage, fmt::format("--rehearse {}: screen has only wrong results: give wrong:rank=N,step=M, "
                                              "where N counts cores and GPUs from 0",
                                              rehearsal));
}

// The units of all ranks. Collective.
std::vector<ScreenedUnit> gather(World& world, const std::vector<ScreenedUnit>& mine) {
  Json rows = Json::array();
  for (const ScreenedUnit& unit : mine) {
    rows.push_back({unit.host, unit.name, unit.kind, unit.digests, unit.changed ? Json(*unit.changed) : Json(),
                    unit.rounds, unit.step_seconds, unit.bytes_per_second});
  }
  std::vector<ScreenedUnit> units;
  for (const std::string& text : all_gather_text(world, rows.dump())) {
    for (const Json& row : Json::parse(text)) {
      units.push_back({.host = row[0], .name = row[1], .kind = row[2], .digests = row[3]});
      if (!row[4].is_null()) units.back().changed = row[4].get<std::size_t>();
      units.back().rounds = row[5];
      units.back().step_seconds = row[6];
      units.back().bytes_per_second = row[7];
    }
  }
  return units;
}

std::string text_of(const WrongUnit& wrong, const std::vector<ScreenedUnit>& units) {
  const ScreenedUnit& unit = units[wrong.unit];
  const std::string what = screened_values().at(wrong.digest).text;
  const std::string who = fmt::format("{} on {} ({})", unit.name, unit.host, unit.kind);
  switch (wrong.reason) {
    case WrongReason::changed:
      return fmt::format("{} is wrong: it did not repeat its results, first different in {}", who, what);
    case WrongReason::minority:
      return fmt::format("{} is wrong: unlike {}, first in {}", who, plural(wrong.right, "other"), what);
    case WrongReason::unlike_shipped:
      return fmt::format("{} is wrong: unlike the digests that Tutti {} ships, first in {}", who, version(), what);
    case WrongReason::undecided:
      return fmt::format(
          "{} may be wrong: it differs from others, first in {}; each repeats its results, and nothing "
          "decides which are right",
          who, what);
  }
  return who;
}

// What is slow for its kind, and what could not be compared.
std::vector<std::string> warnings_of(const std::vector<ScreenedUnit>& units, const Shipped& shipped) {
  std::map<std::string, std::vector<const ScreenedUnit*>> kinds;
  for (const ScreenedUnit& unit : units) kinds[unit.kind].push_back(&unit);
  std::vector<std::string> warnings;
  for (const auto& [kind, members] : kinds) {
    const auto& known = shipped.at(kind);
    const bool is_known = std::ranges::count(members, known, &ScreenedUnit::digests) > 0;
    if (members.size() == 1 && known.empty()) {
      warnings.push_back(fmt::format("{} on {} is alone of its kind ({}), and was compared with itself only",
                                     members.front()->name, members.front()->host, kind));
    } else if (members.size() > 1 && !known.empty() && !is_known) {
      warnings.push_back(
          fmt::format("{} ({}): none has the digests that Tutti {} ships; they were compared with each "
                      "other only",
                      plural(members.size(), "unit"), kind, version()));
    }
    std::vector<double> steps;
    std::vector<double> rates;
    for (const ScreenedUnit* unit : members) {
      steps.push_back(unit->step_seconds);
      rates.push_back(unit->bytes_per_second);
    }
    const double step = quartiles_of(steps).median;
    const double rate = quartiles_of(rates).median;
    for (const ScreenedUnit* unit : members) {
      const auto add = [&](const char* what, double value, double median, const char* unit_of_value) {
        warnings.push_back(fmt::format("{} on {} is slow: {} {:.2f} {}, where the median is {:.2f}", unit->name,
                                       unit->host, what, value, unit_of_value, median));
      };
      if (unit->step_seconds > kSlowFactor * step) add("a step takes", unit->step_seconds * 1e3, step * 1e3, "ms");
      if (unit->bytes_per_second < rate / kSlowFactor)
        add("memory at", unit->bytes_per_second / 1e9, rate / 1e9, "GB/s");
    }
  }
  return warnings;
}

// Slurm's name of a node is usually that of its host without the domain.
std::string node_name(const std::string& host) {
  const char* const here = std::getenv("SLURMD_NODENAME");
  return here != nullptr && *here != '\0' && host == host_name() ? here : host.substr(0, host.find('.'));
}

// Waits for the program. Returns its exit status, or why there is none.
std::string status_of(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failure = ::posix_spawnp(&child, argv.front(), nullptr, nullptr, argv.data(), environ);
  if (failure != 0) return std::generic_category().message(failure);
  int status = 0;
  if (retry_on_eintr([&] { return ::waitpid(child, &status, 0); }) < 0) return std::generic_category().message(errno);
  return WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status))
                           : fmt::format("signal {}", WTERMSIG(status));
}

// Prints the command for each host that has wrong units, and runs it if asked to.
void drain(Drain drain, const std::vector<ScreenedUnit>& units, const std::vector<WrongUnit>& wrong, const Log& log) {
  std::set<std::string> done;
  for (const WrongUnit& found : wrong) {
    const ScreenedUnit& unit = units[found.unit];
    if (!done.insert(unit.host).second) continue;
    const std::string reason =
        fmt::format("trainer screen: {} {} wrong in {}", unit.name,
                    found.reason == WrongReason::undecided ? "may be" : "is", screened_values().at(found.digest).text);
    const std::string node = node_name(unit.host);
    fmt::print("scontrol update NodeName={} State=DRAIN Reason=\"{}\"\n", node, reason);
    std::fflush(stdout);
    if (drain == Drain::print) continue;
    const std::string status = status_of({"scontrol", "update", "NodeName=" + node, "State=DRAIN", "Reason=" + reason});
    if (status != "exit status 0") log.warn(fmt::format("--drain run: scontrol: {}; drain {} by hand", status, node));
  }
}

struct Screening {
  std::vector<ScreenedUnit> units;
  std::vector<WrongUnit> wrong;
  std::vector<std::string> warnings;
  double seconds = 0;
};

void print(const Screening& screening) {
  const auto& units = screening.units;
  for (const WrongUnit& wrong : screening.wrong) fmt::print("{}\n", text_of(wrong, units));
  for (const std::string& warning : screening.warnings) fmt::print("warning: {}\n", warning);
  std::set<std::string> hosts;
  std::int64_t steps = 0;
  std::int64_t digests = 0;
  for (const ScreenedUnit& unit : units) {
    hosts.insert(unit.host);
    steps += unit.rounds * screened_steps();
    digests += unit.rounds * std::ssize(unit.digests);
  }
  const auto is_gpu = [](const ScreenedUnit& unit) { return unit.name.starts_with("GPU"); };
  const auto gpus = std::ranges::count_if(units, is_gpu);
  fmt::print("screened {} and {} of {} in {:.1f} s: {} steps, {} digests; {}\n",
             plural(std::ssize(units) - gpus, "core"), plural(gpus, "GPU"),
             hosts.size() == 1 ? *hosts.begin() : plural(hosts.size(), "host"), screening.seconds, steps, digests,
             screening.wrong.empty() ? "nothing is wrong"
                                     : fmt::format("wrong results of {}", plural(screening.wrong.size(), "unit")));
}

Json json_of(const Screening& screening) {
  Json units = Json::array();
  for (const ScreenedUnit& unit : screening.units) {
    units.push_back({{"host", unit.host},
                     {"unit", unit.name},
                     {"kind", unit.kind},
                     {"rounds", unit.rounds},
                     {"step_seconds_median", unit.step_seconds},
                     {"memory_bytes_per_second", unit.bytes_per_second}});
  }
  Json findings = Json::array();
  for (const WrongUnit& wrong : screening.wrong) {
    const ScreenedUnit& unit = screening.units[wrong.unit];
    const ScreenedValue value = screened_values().at(wrong.digest);
    findings.push_back({{"host", unit.host},
                        {"unit", unit.name},
                        {"reason", name_of(wrong.reason)},
                        {"layer", value.layer},
                        {"pass", value.pass},
                        {"network", value.network},
                        {"precision", name_of(value.precision)},
                        {"text", text_of(wrong, screening.units)}});
  }
  return {{"verdict", findings.empty() ? "right" : "wrong"},
          {"seconds", screening.seconds},
          {"units", units},
          {"findings", findings},
          {"warnings", screening.warnings}};
}

}  // namespace

ExitStatus screen_command(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  const Stopwatch time;
  const Log log(world.rank(), world.host(), false);
  const Device device = invocation.run.processor.device;
  std::vector<ScreenPlan> cores;
  std::vector<ScreenPlan> gpus;
  run_or_throw_on_all(world, [&] {
    cores = cores_of(world, device);
    gpus = gpus_of(world, device, log);
  });
  const int units = number_units(world, cores, gpus);
  std::vector<ScreenedUnit> mine;
  run_or_throw_on_all(world, [&] {
    const std::vector<Fault> faults = faults_of(invocation.run.rehearse, units);
    const double seconds = invocation.screen.seconds / (!cores.empty() && !gpus.empty() ? 2 : 1);
    // One after the other, as the threads that wait for GPUs use cores.
    for (auto* plans : {&cores, &gpus}) {
      for (ScreenPlan& plan : *plans) plan.faults = faults;
      std::ranges::move(screen(*plans, seconds), std::back_inserter(mine));
    }
  });
  Screening screening{.units = gather(world, mine), .wrong = {}, .warnings = {}, .seconds = time.seconds()};
  Shipped shipped;
  for (const ScreenedUnit& unit : screening.units) shipped[unit.kind] = shipped_digests(unit.kind);
  screening.wrong = find_wrong(screening.units, shipped);
  screening.warnings = warnings_of(screening.units, shipped);
  if (world.rank() == 0) {
    print(screening);
    if (invocation.screen.drain) drain(*invocation.screen.drain, screening.units, screening.wrong, log);
  }
  write_json(world, invocation.json, json_of(screening));
  return screening.wrong.empty() ? ExitStatus::done : ExitStatus::diverged;
}

}  // namespace tutti
