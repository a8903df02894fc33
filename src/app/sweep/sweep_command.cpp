#include "sweep_command.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"

#include "../bench/bench.hpp"
#include "../bench/rank_order.hpp"
#include "../bench/whole_launch.hpp"
#include "../preflight/agreement.hpp"
#include "../preflight/brief.hpp"
#include "../several.hpp"
#include "sweep_lists.hpp"
#include "sweep_plan.hpp"
#include "sweep_report.hpp"
#include "sweep_training.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <span>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

class Sweep {
 public:
  Sweep(World& world, const Invocation& invocation, const EndRecord& record)
      : world_(world), invocation_(invocation), record_(record), order_(world) {}

  void prepare();
  void run();

 private:
  void tell(const std::string& text) const;
  void write_json();
  void refuse_without_result();

  World& world_;
  const Invocation& invocation_;
  const EndRecord& record_;
  RankOrder order_;
  SweepPlan plan_;
  WholeLaunch launch_;
  SweepOutcomes outcomes_;  // on rank 0, which works on all of them
};

void Sweep::prepare() {
  const RunConfig& asked = invocation_.run;
  refuse_or_tell(world_, preflight_in_brief(world_, asked), Log(world_.rank(), world_.host(), asked.quiet));
  const Claim lists{"lists to sweep", sweep_text(invocation_.sweep), "give all ranks the same"};
  refuse_or_tell(world_, compare(world_, {lists}), Log());
  run_agreed(world_, [&] { plan_ = plan_sweep(invocation_, world_.size()); });
  outcomes_.resize(plan_.cases.size());
  const auto first = std::ranges::find_if(plan_.cases, [](const SweepCase& one) { return one.cannot.empty(); });
  launch_ = look_at_launch(world_, first->config);
  for (SweepCase& one : plan_.cases) {
    // Whatever a row leaves out, a rank is the same rank in all of them.
    if (one.config.threads == 0 && one.config.parts == 0) one.config.threads = launch_.threads;
    if (one.config.device == "auto") one.config.device = launch_.on_gpus ? "cuda" : "cpu";
  }
}

void Sweep::tell(const std::string& text) const {
  if (world_.rank() != 0) return;
  fmt::print("{}", text);
  std::fflush(stdout);
}

// After every row: a job may end before its sweep does.
void Sweep::write_json() {
  Json json{{"sweep", plan_.columns},
            {"for_all", plan_.for_all},
            {"libraries", launch_.libraries},
            {"hosts", order_.hosts()},
            {"launched_ranks", world_.size()},
            {"speed_up_by", plan_.compares_ranks ? "ranks" : "first row"},
            {"rows", Json::array()}};
  if (world_.rank() == 0 && !invocation_.json.empty()) {
    for (std::size_t row = 0; row < outcomes_.size(); ++row) {
      json["rows"].push_back(sweep_row_json(plan_, outcomes_, row));
    }
  }
  write_bench_json(world_, invocation_.json, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void Sweep::run() {
  write_json();
  tell(fmt::format("{}\n{}{}{}\n\n{}", launch_.libraries, several(plan_.cases.size(), "training"),
                   plan_.for_all.empty() ? "" : ", all with ", plan_.for_all, sweep_head(plan_)));
  for (std::size_t row = 0; row < plan_.cases.size(); ++row) {
    const SweepCase& one = plan_.cases[row];
    if (one.cannot.empty()) {
      on_ranks(world_, order_.position() < one.ranks, [&](World& working) {
        outcomes_[row] = train_case(working, one.config, {.cores = launch_.cores_of_rank, .watch = record_.watch});
      });
      write_json();
    }
    if (world_.rank() == 0) tell(sweep_line(plan_, outcomes_, row));
  }
  refuse_without_result();
  if (world_.rank() == 0) tell("\n" + sweep_foot(plan_, outcomes_));
}

// The ranks that slept know nothing of it.
void Sweep::refuse_without_result() {
  const auto is_trained = [](const auto& outcome) { return outcome && !outcome->trouble; };
  if (!world_.agree(world_.rank() != 0 || std::ranges::none_of(outcomes_, is_trained))) return;
  const auto first = std::ranges::find_if(outcomes_, [](const auto& outcome) { return outcome.has_value(); });
  ErrorSource source = ErrorSource::internal;
  std::string reason;
  if (world_.rank() == 0) {
    source = (*first)->trouble->source();
    reason = (*first)->trouble->what();
  }
  world_.broadcast(std::as_writable_bytes(std::span(&source, 1)), 0);
  reason = broadcast_text(world_, reason, 0);
  throw Error(source, fmt::format("no combination could be trained; the first: {}", reason)).on_all_ranks();
}

}  // namespace

ExitStatus sweep_command(World& world, const Invocation& invocation, const EndRecord& record) {
  Sweep sweep(world, invocation, record);
  sweep.prepare();
  sweep.run();
  return ExitStatus::done;
}

}  // namespace tutti
