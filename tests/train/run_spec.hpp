#pragma once
// A training on some ranks of a test's world. Its report is a text that must not depend on the number of ranks.

#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "support/mpi_world.hpp"
#include "train/training_run.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

struct RunSpec {
  int ranks = 1;
  NetworkSpec model;
  std::vector<std::string> frozen{};  // as of Network
  Precision precision = Precision::fp32;
  TrainerOptions options;
  std::string from{};              // the checkpoint that it starts from
  std::string to{};                // the folder of the checkpoint that it saves at its end
  std::set<std::int64_t> stops{};  // steps after which a new trainer resumes from the saved state
  bool helper_thread = false;
  std::int64_t digest_every = 1;
  // Wraps the ring communicator. Null: the trainer uses the ring.
  std::function<std::unique_ptr<Communicator>(World& world, std::unique_ptr<Communicator> ring)> wrap{};
  // Injects a fault into a rank at once, or returns a listener that injects it in a phase. Collective. Null: no fault.
  std::function<std::unique_ptr<PhaseListener>(int rank, Trainer& trainer)> inject{};
};

class ReportWriter : public RunObserver {
 public:
  explicit ReportWriter(std::set<std::int64_t> stops) : stops_(std::move(stops)) {}
  BoundaryAction at_boundary(std::int64_t step) override {
    return stops_.contains(step) ? BoundaryAction::save_and_stop : BoundaryAction::proceed;
  }
  void on_checkpoint(TrainState state, double) override { saved = std::move(state); }
  void on_digest(const DigestReport& report) override {
    text += fmt::format(
        "step {}: weights {:016x} gradients {:016x} optimizer {:016x} statistics {:016x} averages {:016x}\n",
        report.step, report.weights, report.gradients, report.optimizer, report.statistics.value_or(0),
        report.averages.value_or(0));
  }
  void on_interval(const IntervalReport& report) override {
    text += fmt::format("step {}: {}\n", report.step, words(report.train));
  }
  void on_skipped(const SkippedReport& report) override { text += fmt::format("step {}: left out\n", report.step); }
  void on_epoch(const EpochReport& report) override {
    text += fmt::format("epoch {}: {}; test {}; {} redone\n", report.epoch, words(report.train),
                        words(report.test.value_or(LossSums{})), report.redone_steps);
    repeated += report.redone_steps;
  }

  std::string text;
  std::optional<TrainState> saved;
  std::int64_t repeated = 0;  // steps

 private:
  std::set<std::int64_t> stops_;
  static std::string words(const LossSums& sums) {
    return fmt::format("loss {}, {} correct of {}", sums.loss(), sums.correct, sums.samples);
  }
};

// The report of one rank. Its last line counts the steps and the repeated steps.
inline std::string report_of_rank(const RunSpec& spec, World& world, const DataPair& data) {
  const auto backend = make_cpu_backend(spec.precision);
  auto communicator = make_mpi_communicator(world, {.helper_thread = spec.helper_thread});
  if (spec.wrap) communicator = spec.wrap(world, std::move(communicator));
  const bool norms_globally = spec.options.batch_norm == BatchNorm::global;
  const auto norm_communicator = norms_globally ? make_mpi_library_communicator(world) : nullptr;
  const Network network(spec.model, data.train->info().image, data.train->info().classes, spec.frozen);
  TrainerOptions options = spec.options;
  options.digest_every_steps = spec.digest_every;
  options.log_every_steps = 1;
  ReportWriter writer(spec.stops);
  if (!spec.from.empty()) writer.saved = load_checkpoint(spec.from).state;
  if (writer.saved) writer.repeated = -writer.saved->progress.redone_steps;  // those of the run before
  std::size_t stopped = 0;
  RunEnd end = RunEnd::stopped;
  RankStatus rank_status;
  try {
    while (end == RunEnd::stopped) {
      Trainer trainer({.backend = *backend,
                       .communicator = *communicator,
                       .network = network,
                       .train = *data.train,
                       .test = data.test.get(),
                       .rank_status = &rank_status,
                       .norm_communicator = norm_communicator.get()},
                      options, {});
      if (writer.saved) trainer.restore(*writer.saved);
      const auto listener = spec.inject ? spec.inject(world.rank(), trainer) : nullptr;
      if (listener) rank_status.add(*listener);
      end = trainer.run(writer);
      if (listener) rank_status.remove(*listener);
      if (end == RunEnd::stopped) {
        ++stopped;
        continue;
      }
      EXPECT_EQ(stopped, spec.stops.size());
      const TrainState state = trainer.snapshot();
      if (!spec.to.empty() && world.rank() == 0) CheckpointStore(spec.to).save(state);
      writer.text += fmt::format("{} steps, {} repeated\n", trainer.steps_done(), writer.repeated);
    }
  } catch (const Error& error) {
    writer.text += fmt::format("ended: {}\n", error.what());
  }
  return writer.text;
}

// The first line in which two texts differ, of both texts. Empty if they are equal.
inline std::string first_difference(const std::string& one, const std::string& other) {
  const auto place = std::ranges::mismatch(one, other).in1 - one.begin();
  if (one == other) return {};
  const auto line = [begin = place == 0 ? 0 : one.rfind('\n', static_cast<std::size_t>(place) - 1) + 1](
                        const std::string& text) { return text.substr(begin, text.find('\n', begin) - begin); };
  return fmt::format("'{}', not '{}'", line(one), line(other));
}

// Runs each spec, checks that its ranks have the same report, and returns the report. Runs as many specs at once as
// there are ranks for. Collective.
inline std::vector<std::string> reports_of(const std::vector<RunSpec>& specs, const DataPair& data) {
  World& all = test_world();
  std::vector<std::string> reports;
  while (reports.size() < specs.size()) {
    std::vector<int> spec_of_rank;
    std::size_t next = reports.size();
    for (; next < specs.size() && std::ssize(spec_of_rank) + specs[next].ranks <= all.size(); ++next) {
      spec_of_rank.insert(spec_of_rank.end(), static_cast<std::size_t>(specs[next].ranks), static_cast<int>(next));
    }
    if (spec_of_rank.empty()) throw std::invalid_argument("this test needs more ranks");
    spec_of_rank.resize(static_cast<std::size_t>(all.size()), -1);
    const int mine = spec_of_rank[static_cast<std::size_t>(all.rank())];
    const auto world = all.split(mine);
    const auto texts =
        all_gather_text(all, world ? report_of_rank(specs[static_cast<std::size_t>(mine)], *world, data) : "");
    for (std::size_t rank = 0; rank < texts.size() && spec_of_rank[rank] >= 0; ++rank) {
      const bool first = rank == 0 || spec_of_rank[rank] != spec_of_rank[rank - 1];
      if (first) reports.push_back(texts[rank]);
      if (all.rank() > 0) continue;
      EXPECT_EQ(first_difference(texts[rank], reports.back()), "") << "rank " << rank;
    }
  }
  return reports;
}

// A run on small data that does not fill a whole number of batches.
inline RunSpec small_run(const NetworkSpec& model, const ExchangeOptions& exchange) {
  RunSpec spec{.model = model, .options = {}};
  spec.options.batch_size = 16;
  spec.options.num_parts = 8;
  spec.options.exchange = exchange;
  spec.options.epochs = 1000;
  spec.options.steps = 40;
  spec.options.optimizer.weight_decay = 5e-4;
  return spec;
}

// The lines that start with `beginning`.
inline std::string lines_of(const std::string& text, const std::string& beginning) {
  std::string lines;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (line.starts_with(beginning)) lines += line + "\n";
  }
  return lines;
}

// Checks that all specs run their steps and have the same report. Collective.
inline void expect_the_same(const std::vector<RunSpec>& specs, const DataPair& data) {
  const std::vector<std::string> texts = reports_of(specs, data);
  if (test_world().rank() != 0) return;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_NE(texts[i].find(fmt::format("\n{} steps, ", specs[i].options.steps)), std::string::npos) << texts[i];
    EXPECT_EQ(first_difference(texts[i], texts[0]), "") << specs[i].ranks << " ranks";
  }
}

inline std::vector<RunSpec> on_ranks(const RunSpec& spec, const std::vector<int>& ranks) {
  std::vector<RunSpec> specs;
  for (const int each : ranks) specs.emplace_back(spec).ranks = each;
  return specs;
}

}  // namespace tutti
