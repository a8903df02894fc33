#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/checkpoint_writer.hpp"

#include "../output.hpp"
#include "bench.hpp"
#include "run_reports.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kWarmupSteps = 2;

[[noreturn]] void fail(const std::string& folder, const char* action) {
  throw Error(ErrorSource::save, fmt::format("--folder {}: {} fails: {}; choose a folder with room that can be written",
                                             folder, action, std::generic_category().message(errno)));
}

// A temporary folder, removed with its contents.
class OwnFolder {
 public:
  explicit OwnFolder(const std::string& parent) : path_(parent + "/tutti-bench-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) fail(parent, "making a folder in it");
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  ~OwnFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The lower bound of a save: writing the bytes and waiting for the disk.
void write_plainly(const std::string& folder, std::span<const std::byte> bytes) {
  const std::string path = folder + "/plain";
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) fail(folder, "making a file");
  if (!write_all(file.get(), bytes).empty()) fail(folder, "writing");
  if (::fsync(file.get()) != 0) fail(folder, "flushing a file");
}

// A row of the table: wall-clock seconds, and CPU seconds of all threads of this process.
struct Cost {
  const char* name;
  bool moves_bytes = true;
  std::vector<double> seconds{};
  std::vector<double> processor{};

  void measure(const std::function<void()>& work) {
    const double before = process_cpu_seconds();
    const Stopwatch watch;
    work();
    seconds.push_back(watch.seconds());
    processor.push_back(process_cpu_seconds() - before);
  }
};

// The median of the ratios of the rounds, which is robust against a disk or machine that is busy for a while.
double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  std::ranges::transform(a, b, std::back_inserter(ratios), [](double x, double y) { return x / y; });
  return quartiles_of(ratios).median;
}

struct Figures {
  std::int64_t bytes = 0;  // of a checkpoint
  Cost step{"step", false};
  Cost stall{"stall: copy and hand over"};  // of training, for one checkpoint
  Cost save{"save"};                        // while training waits
  Cost plain{"plain write and fsync"};
  Cost load{"verify and load"};
  Cost step_beside{"step during a save", false};
  std::vector<double> save_beside;  // seconds, while training continues
};

// A training whose state is saved repeatedly by rank 0.
class SavedTraining {
 public:
  SavedTraining(World& world, Trainer& trainer, const std::string& folder) : world_(world), trainer_(trainer) {
    on_rank_0(world_, [&] {
      folder_.emplace(folder);
      writer_.emplace(CheckpointStore(folder_->path()), WriterOptions{.keep_checkpoints = 2});
    });
    for (std::int64_t i = 0; i < kWarmupSteps; ++i) step();
  }

  void round() {
    measure_together(figures_.step, [this] { step(); });
    hand_over();
    on_rank_0(world_, [this] { measure_save(); });
    step();
    hand_over();
    for (bool saved = false; !saved;) {
      measure_together(figures_.step_beside, [this] { step(); });
      std::optional<SaveReport> report;
      on_rank_0(world_, [&] { report = take_report(); });
      if (report) figures_.save_beside.push_back(report->seconds);
      saved = world_.all_true(world_.rank() != 0 || report.has_value());
    }
  }
  const Figures& figures() const { return figures_; }

 private:
  // Records the times of the slowest rank.
  void measure_together(Cost& cost, const std::function<void()>& work) {
    world_.barrier();
    cost.measure(work);
    const auto largest = max_over_ranks(world_, {cost.seconds.back(), cost.processor.back()});
    cost.seconds.back() = largest[0];
    cost.processor.back() = largest[1];
  }
  void measure_save() {
    figures_.save.measure([this] { writer_->finish(); });
    const SaveReport report = take_report().value();
    figures_.save.seconds.back() = report.seconds;
    figures_.bytes = report.bytes;
    const std::vector<std::byte> bytes = read_file_bytes(report.path);
    figures_.plain.measure([&] { write_plainly(folder_->path(), bytes); });
    figures_.load.measure([&] { static_cast<void>(load_checkpoint(report.path)); });
  }
  void step() {
    trainer_.step();
    trainer_.synchronize();
  }
  void hand_over() {
    measure_together(figures_.stall, [&] {
      TrainState state = trainer_.snapshot(world_.rank() == 0 ? std::optional(FileShard{}) : std::nullopt);
      if (writer_) writer_->save(std::move(state));
    });
  }
  // The result of the last save; empty while it is in progress.
  std::optional<SaveReport> take_report() {
    const auto reports = writer_->take_reports();
    if (reports.empty()) return std::nullopt;
    if (!reports.front().failure.empty()) throw Error(ErrorSource::save, reports.front().failure);
    return reports.front();
  }

  World& world_;
  Trainer& trainer_;
  std::optional<OwnFolder> folder_;
  std::optional<CheckpointWriter> writer_;
  Figures figures_;
};

// Prints the figures, and returns them as JSON.
Json report(const Figures& figures, const RunConfig& config, const std::string& libraries, int ranks) {
  const double mib = mebi(figures.bytes);
  fmt::print("{}\n", libraries);
  fmt::print("{} {}, {}, batch {} in {} on {}, checkpoints of {:.1f} MiB\n", config.model,
             name_of(*config.processor.precision), name_of(config.trainer.optimizer.kind), config.trainer.batch_size,
             plural(config.trainer.num_parts, "part"), plural(ranks, "rank"), mib);
  fmt::print("{:<25} {:>10} {:>9} {:>9} {:>12} {:>8}\n", "", "median ms", "25 % ms", "75 % ms", "processor ms",
             "MiB/s");
  Json rows = Json::array();
  for (const Cost* cost :
       {&figures.step, &figures.stall, &figures.save, &figures.plain, &figures.load, &figures.step_beside}) {
    const Quartiles time = quartiles_of(cost->seconds);
    const double processor = quartiles_of(cost->processor).median;
    fmt::print("{:<25} {:>10.2f} {:>9.2f} {:>9.2f} {:>12.2f} {:>8}\n", cost->name, time.median * 1e3, time.low * 1e3,
               time.high * 1e3, processor * 1e3, cost->moves_bytes ? fmt::format("{:.0f}", mib / time.median) : "");
    rows.push_back({{"what", cost->name},
                    {"seconds_median", time.median},
                    {"seconds_low_quartile", time.low},
                    {"seconds_high_quartile", time.high},
                    {"processor_seconds_median", processor}});
  }
  const double save_beside = quartiles_of(figures.save_beside).median;
  const double bandwidth_of_plain = median_ratio(figures.plain.seconds, figures.save.seconds);
  const double stall_of_step = quartiles_of(figures.stall.seconds).median / quartiles_of(figures.step.seconds).median;
  fmt::print("{:<25} {:>10.2f}\n", "save during steps", save_beside * 1e3);
  fmt::print(
      "a save reaches {:.2f} of the bandwidth of a plain write and fsync; training pauses for {:.3f} of a step\n",
      bandwidth_of_plain, stall_of_step);
  return {{"bench", "checkpoint"},
          {"libraries", libraries},
          {"model", config.model},
          {"data", config.data.train},
          {"precision", name_of(*config.processor.precision)},
          {"optimizer", name_of(config.trainer.optimizer.kind)},
          {"batch", config.trainer.batch_size},
          {"ranks", ranks},
          {"parts", config.trainer.num_parts},
          {"checkpoint_bytes", figures.bytes},
          {"bandwidth_of_plain", bandwidth_of_plain},
          {"stall_of_step", stall_of_step},
          {"save_beside_steps_seconds_median", save_beside},
          {"measured", rows}};
}

}  // namespace

ExitStatus bench_checkpoint(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  RunConfig config = config_for_steps(invocation, 1'000'000'000);
  if (!invocation.run.given.contains("model")) config.model = "resnet18";
  PreparedTraining run(world, config);
  SavedTraining training(world, *run.trainer, invocation.checkpoint_bench.folder);
  for (std::int64_t round = 0; round < invocation.checkpoint_bench.rounds; ++round) training.round();
  const std::string libraries = versions_text(*run.assembly.processor.backend, world);
  Json json;
  if (world.rank() == 0) json = report(training.figures(), run.assembly.config, libraries, world.size());
  write_json(world, invocation.json, json);
  return ExitStatus::done;
}

}  // namespace tutti
