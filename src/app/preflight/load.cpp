#include "load.hpp"

#include "tutti/base/error.hpp"
#include "tutti/watch/rank_clocks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>

namespace tutti {
namespace {

constexpr double kMebi = 0x1p20;
constexpr std::int64_t kFewLockedBytes = std::int64_t{64} << 20;
constexpr double kClockSeconds = 1;
// Of a part with batch norm.
constexpr std::int64_t kFewSamples = 16;

}  // namespace

Findings judge_cores(const HostLoad& load) {
  Findings findings;
  const Cores& cores = load.cores;
  if (cores.mine < load.threads && cores.mine < cores.present) {
    findings.warn(fmt::format(
        "bound to {} of the host's {} cores, but --threads is {}: start mpirun with --bind-to none, or srun with "
        "--cpus-per-task {}",
        cores.mine, cores.present, load.threads, load.threads));
  }
  const std::string crowd = fmt::format("{}: {} rank{} compute{} with {} threads", load.host, load.ranks,
                                        load.ranks == 1 ? "" : "s", load.ranks == 1 ? "s" : "", load.busy_threads);
  if (load.busy_threads > cores.usable) {
    const bool is_bound = cores.usable < cores.present;
    findings.warn(fmt::format("{} on {} of {} cores: {}", crowd, cores.usable, cores.present,
                              is_bound ? "let the launcher bind them to more, as mpirun --bind-to none does"
                                       : "start fewer ranks there, or give fewer --threads"));
  }
  if (load.quota && static_cast<double>(load.busy_threads) > *load.quota + 0.5) {
    findings.warn(
        fmt::format("{}, but their control group allows {:.1f} cores: ask for more (docker --cpus, Slurm's "
                    "--cpus-per-task), or give fewer --threads",
                    crowd, *load.quota));
  }
  return findings;
}

Findings judge_waiting(const HostLoad& load, const std::string& mpi_library, const std::string& setting) {
  Findings findings;
  const bool yields = setting == "1" || setting == "true";
  if (load.ranks > load.cores.usable && mpi_library.starts_with("Open MPI") && !yields) {
    findings.warn(
        fmt::format("{}: {} ranks on {} cores wait for each other without giving way: export "
                    "OMPI_MCA_mpi_yield_when_idle=1",
                    load.host, load.ranks, load.cores.usable));
  }
  return findings;
}

ProcessLimits process_limits() {
  const auto limit_of = [](auto resource) -> std::optional<std::int64_t> {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
    return static_cast<std::int64_t>(limit.rlim_cur);
  };
  return {.address_space = limit_of(RLIMIT_AS),
          .file_size = limit_of(RLIMIT_FSIZE),
          .open_files = limit_of(RLIMIT_NOFILE),
          .locked_memory = limit_of(RLIMIT_MEMLOCK)};
}

Findings judge_limits(const ProcessLimits& limits, const LimitedNeeds& needs) {
  Findings findings;
  if (limits.address_space && needs.memory_bytes > *limits.address_space) {
    findings.doom(
        ErrorSource::input,
        fmt::format("a rank needs about {:.0f} MiB, and its processes may have {:.0f} (ulimit -v): raise that "
                    "limit, or give a smaller --batch-size{}",
                    static_cast<double>(needs.memory_bytes) / kMebi, static_cast<double>(*limits.address_space) / kMebi,
                    needs.largest.empty() ? "" : fmt::format(" (largest layer: {})", needs.largest)));
  } else if (limits.address_space && needs.on_gpu) {
    findings.warn(
        fmt::format("the address space ends at {:.0f} MiB (ulimit -v), and CUDA sets aside much more than it "
                    "uses: ulimit -v unlimited",
                    static_cast<double>(*limits.address_space) / kMebi));
  }
  if (limits.file_size && needs.file_bytes > *limits.file_size) {
    findings.doom(ErrorSource::save, fmt::format("a checkpoint takes about {:.1f} MiB, and files end at {:.1f} (ulimit "
                                                 "-f): raise that limit",
                                                 static_cast<double>(needs.file_bytes) / kMebi,
                                                 static_cast<double>(*limits.file_size) / kMebi));
  }
  // Those of the MPI library and its connections, and the other ranks' memory.
  const std::int64_t files = 128 + 4 * std::int64_t{needs.local_ranks};
  if (limits.open_files && *limits.open_files < files) {
    findings.warn(
        fmt::format("only {} files may be open at once (ulimit -n), and a rank among {} on its host wants {}: "
                    "raise that limit",
                    *limits.open_files, needs.local_ranks, files));
  }
  if (limits.locked_memory && *limits.locked_memory < kFewLockedBytes && (needs.on_gpu || needs.has_fast_network)) {
    findings.warn(
        fmt::format("only {:.1f} MiB may be locked in memory (ulimit -l), which NCCL and fast networks want "
                    "more of: ulimit -l unlimited",
                    static_cast<double>(*limits.locked_memory) / kMebi));
  }
  return findings;
}

Findings judge_clocks(const Hosts& hosts, const std::vector<double>& ahead) {
  Findings findings;
  std::set<std::string> told{hosts.front()};
  for (std::size_t rank = 1; rank < hosts.size(); ++rank) {
    if (std::abs(ahead[rank]) <= kClockSeconds || !told.insert(hosts[rank]).second) continue;
    findings.warn(
        fmt::format("the clock of {} is {:.1f} s {} that of {}: let both keep network time (chrony, ntp), or their "
                    "logs tell another order of events",
                    hosts[rank], std::abs(ahead[rank]), ahead[rank] > 0 ? "ahead of" : "behind", hosts.front()));
  }
  return findings;
}

std::vector<double> seconds_ahead(World& world) {
  const ClockReading mine = read_clock(
      world, [] { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); });
  const auto least = static_cast<double>(std::max<std::int64_t>(0, std::abs(mine.offset_ns) - mine.error_ns));
  std::vector<double> ahead;
  for (const auto& figures : all_gather_figures(world, {std::copysign(least, mine.offset_ns) / 1e9})) {
    ahead.push_back(figures.front());
  }
  return ahead;
}

Findings check_classes(const DatasetInfo& train) {
  Findings findings;
  constexpr std::size_t kMostNamed = 5;
  std::vector<std::string> empty;
  for (std::size_t label = 0; label < train.class_samples.size(); ++label) {
    if (train.class_samples[label] != 0) continue;
    const bool has_name = label < train.class_names.size();
    empty.push_back(has_name ? fmt::format("{} ('{}')", label, train.class_names[label]) : fmt::format("{}", label));
  }
  if (!train.labelled || empty.empty()) return findings;
  const std::size_t count = empty.size();
  empty.resize(std::min(count, kMostNamed));
  findings.warn(fmt::format("{} of {} classes {} no training samples in {}: {}{}; the network cannot learn {}", count,
                            train.class_samples.size(), count == 1 ? "has" : "have", train.name, fmt::join(empty, ", "),
                            count > kMostNamed ? ", ..." : "", count == 1 ? "it" : "them"));
  return findings;
}

Findings judge_parts(const RunConfig& config, bool has_batch_norm) {
  Findings findings;
  const std::int64_t smallest = config.batch_size / config.parts;
  if (smallest == 0) {
    findings.warn(
        fmt::format("a batch of {} samples leaves {} of {} parts empty: give a larger --batch-size, or fewer "
                    "--parts or ranks",
                    config.batch_size, config.parts - config.batch_size, config.parts));
  } else if (smallest < kFewSamples && has_batch_norm) {
    findings.warn(
        fmt::format("batch norm sees parts of {} samples, each alone, and below {} its statistics are noisy: give a "
                    "larger --batch-size or fewer --parts",
                    smallest, kFewSamples));
  }
  return findings;
}

Findings judge_rates(const RunConfig& config, std::int64_t planned, std::int64_t scheduled) {
  Findings findings;
  if (config.lr == 0) findings.warn("--lr 0: the weights will not change; give a learning rate above 0");
  if (config.schedule_epochs > 0 && config.schedule != Schedule::cosine) {
    findings.warn(fmt::format("--schedule-epochs {} has no effect with --schedule {}: it belongs to --schedule cosine",
                              config.schedule_epochs, name_of(config.schedule)));
  }
  if (config.schedule == Schedule::cosine && config.lr > 0 && config.min_lr == 0 && planned > scheduled) {
    findings.warn(fmt::format(
        "the cosine schedule ends at epoch {}, and --epochs is {}: from there on the learning rate is 0 and "
        "the weights will not change; give --schedule-epochs {}, or start a new run with --min-lr or with "
        "--init-from",
        config.schedule_epochs, config.epochs, config.epochs));
  }
  return findings;
}

}  // namespace tutti
