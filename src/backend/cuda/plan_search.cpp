#include "backend/cuda/plan_search.hpp"

#include "tutti/base/error.hpp"

#include "backend/cuda/plan_check.hpp"
#include "backend/cuda/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace tutti::cuda {
namespace {

constexpr float kNearlyAsFast = 1.3F;
constexpr float kFarTooSlow = 3;
constexpr std::size_t kFinalists = 3;
constexpr int kFinalRuns = 2;

struct TensorBytes {
  std::size_t input;
  std::size_t filters;
  std::size_t output;
};

TensorBytes bytes_of_tensors(const ConvolutionShape& shape) {
  const auto bytes = [&](std::int64_t values) {
    return static_cast<std::size_t>(values) *
           (shape.precision == Precision::bf16 ? sizeof(std::uint16_t) : sizeof(float));
  };
  return {bytes(shape.samples * shape.height * shape.width * shape.channels),
          bytes(shape.outputs * shape.kernel_height * shape.kernel_width * shape.group_channels()),
          bytes(shape.samples * shape.output_height() * shape.output_width() * shape.outputs)};
}

// Bytes written between runs: more than the cache holds, and long enough that the run is enqueued before it starts.
std::size_t flush_bytes(int device) {
  int cache = 0;
  check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device));
  return 2 * static_cast<std::size_t>(cache);
}

struct RunPlan {
  std::size_t plan = 0;
  RunTime time;
};

// Plans of which a run was not timed well enough to tell whether they are among the fastest are run again.
void settle(std::vector<RunPlan>& plans, const PlanRuns& runs) {
  std::ranges::sort(plans, {}, [](const RunPlan& plan) { return plan.time.min; });
  float best = std::numeric_limits<float>::infinity();
  for (const RunPlan& plan : plans) best = std::min(best, plan.time.max);
  for (auto& [plan, time] : plans) {
    if (time.min > kNearlyAsFast * best || time.max <= kNearlyAsFast * best) continue;
    if (const auto again = runs.run(plan)) time = {std::min(again->min, time.max), std::min(again->max, time.max)};
    best = std::min(best, time.max);
  }
  std::ranges::sort(plans, {}, [](const RunPlan& plan) { return plan.time.max; });
}

}  // namespace

std::optional<std::size_t> choose_fastest(std::span<const std::int64_t> engines, const PlanRuns& runs) {
  std::vector<RunPlan> usable;
  std::map<std::int64_t, float> best_of_engine;
  float best = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < engines.size(); ++i) {
    const auto known = best_of_engine.find(engines[i]);
    if (known != best_of_engine.end() && known->second > kFarTooSlow * best) continue;
    const auto time = runs.run(i);
    if (!time) continue;
    usable.push_back({i, *time});
    best = std::min(best, time->max);
    float& of_engine = best_of_engine.try_emplace(engines[i], time->min).first->second;
    of_engine = std::min(of_engine, time->min);
  }
  if (usable.empty()) return {};
  settle(usable, runs);

  std::vector<RunPlan> finalists;
  for (const RunPlan& plan : usable) {
    if (finalists.size() == kFinalists) break;
    if (!finalists.empty() && plan.time.max > kNearlyAsFast * finalists.front().time.max) break;
    if (runs.prepare(plan.plan)) finalists.push_back(plan);
  }
  if (finalists.empty()) return usable.front().plan;
  if (finalists.size() == 1) return finalists.front().plan;
  std::vector<float> times(finalists.size(), std::numeric_limits<float>::infinity());
  for (int run = 0; run < kFinalRuns; ++run) {
    for (std::size_t i = 0; i < finalists.size(); ++i) times[i] = std::min(times[i], runs.time(finalists[i].plan));
  }
  return finalists[static_cast<std::size_t>(std::ranges::min_element(times) - times.begin())].plan;
}

// The plans of one pass with memory in which they run.
class PlanSearch::Trial {
 public:
  Trial(int device, ConvolutionPass pass, const ConvolutionShape& shape,
        std::span<const std::shared_ptr<ConvolutionPlan>> plans, std::size_t flushed_bytes)
      : device_(device), pass_(pass), shape_(shape), plans_(plans), flushed_bytes_(flushed_bytes) {
    for (const auto& plan : plans) scratch_bytes_ = std::max(scratch_bytes_, plan->scratch_bytes());
  }

  // Twice what is written between runs: half of it stays free. And a margin for the sums of PlanCheck.
  std::size_t bytes() const {
    const TensorBytes tensors = bytes_of_tensors(shape_);
    return tensors.input + tensors.filters + tensors.output + scratch_bytes_ + 2 * flushed_bytes_ + (64U << 20);
  }

  void begin() {
    const TensorBytes bytes = bytes_of_tensors(shape_);
    stream_ = make_cuda_stream(device_);
    flushed_ = allocate_cuda(device_, flushed_bytes_);
    scratch_ = allocate_cuda(device_, scratch_bytes_);
    input_ = allocate_cuda(device_, bytes.input);
    filters_ = allocate_cuda(device_, bytes.filters);
    output_ = allocate_cuda(device_, bytes.output);
    for (auto* const event : {&flush_, &begin_, &end_}) *event = make_timed_cuda_event(device_);
    graphs_.resize(plans_.size());
    is_checked_.resize(plans_.size());
    check_.emplace(*stream_, pass_, shape_, tensors());
  }

  // Empty if the plan fails, or is off in its first run.
  std::optional<RunTime> run(std::size_t plan) {
    try {
      if (!is_checked_[plan]) check_->clear_result();
      const RunTime time = timed([&] { enqueue(plan); });
      if (is_checked_[plan] || is_exact(plan)) return time;
    } catch (const Error& error) {
      if (error.source() != ErrorSource::cudnn) throw;
      ++failed_;
    }
    return {};
  }

  // Whether it can be captured.
  bool capture(std::size_t plan) {
    try {
      graphs_[plan] = capture_cuda_graph(*stream_, [&] { enqueue(plan); });
      return true;
    } catch (const Error& error) {
      if (!is_of_gpu(error)) throw;
      return false;
    }
  }

  float time_as_used(std::size_t plan) {
    return timed([&] { graphs_[plan] ? graphs_[plan]->launch(*stream_) : enqueue(plan); }).max;
  }

  void end() { stream_->synchronize(); }
  std::int64_t runs() const { return runs_; }
  std::int64_t inexact() const { return inexact_; }
  std::string reason() const {
    std::string text;
    if (failed_ > 0) text = fmt::format("{} fail", failed_);
    if (inexact_ == 0) return text;
    return fmt::format("{}{}{} off by at least {:.1e} of the result, where {:.1e} is allowed", text,
                       text.empty() ? "" : ", ", inexact_ == 1 ? "1 is" : fmt::format("{} are", inexact_), min_error_,
                       largest_error(pass_, shape_));
  }

 private:
  ConvolutionTensors tensors() const { return {input_.data(), filters_.data(), output_.data()}; }
  void enqueue(std::size_t plan) { plans_[plan]->run(*stream_, tensors(), scratch_.data()); }

  bool is_exact(std::size_t plan) {
    const double error = check_->error();
    is_checked_[plan] = true;
    if (error <= largest_error(pass_, shape_)) return true;
    ++inexact_;
    if (error < min_error_) min_error_ = error;
    return false;
  }

  RunTime timed(const std::function<void()>& run) {
    ++runs_;
    const Stopwatch host;
    stream_->record(*flush_);
    if (flushed_bytes_ > 0) check(cudaMemsetAsync(flushed_.data(), 0, flushed_bytes_, native(*stream_)));
    stream_->record(*begin_);
    run();
    stream_->record(*end_);
    const double enqueued = host.seconds();
    stream_->await(*end_);
    const double late = std::max(0.0, enqueued - begin_->seconds_since(*flush_));
    const double seconds = end_->seconds_since(*begin_);
    return {static_cast<float>(std::max(0.0, seconds - late) * 1e3), static_cast<float>(seconds * 1e3)};
  }

  int device_;
  ConvolutionPass pass_;
  ConvolutionShape shape_;
  std::span<const std::shared_ptr<ConvolutionPlan>> plans_;
  std::size_t flushed_bytes_;
  std::size_t scratch_bytes_ = 0;
  std::unique_ptr<CudaStream> stream_;
  Buffer flushed_;
  Buffer scratch_;
  Buffer input_;
  Buffer filters_;
  Buffer output_;
  std::unique_ptr<Event> flush_;
  std::unique_ptr<Event> begin_;
  std::unique_ptr<Event> end_;
  std::optional<PlanCheck> check_;
  std::vector<std::unique_ptr<Graph>> graphs_;
  std::vector<bool> is_checked_;
  std::int64_t runs_ = 0;
  std::int64_t failed_ = 0;
  std::int64_t inexact_ = 0;
  double min_error_ = std::numeric_limits<double>::infinity();
};

PlanSearch::PlanSearch(int device, bool uses_graphs, double max_seconds)
    : device_(device), uses_graphs_(uses_graphs), max_seconds_(max_seconds) {}

bool PlanSearch::has_memory_for(const Trial& trial) {
  const bool has_memory = trial.bytes() < static_cast<std::size_t>(free_bytes(device_));
  if (!has_memory) ++unchecked_passes_;
  return has_memory;
}

std::shared_ptr<ConvolutionPlan> PlanSearch::fastest(ConvolutionPass pass, const ConvolutionShape& shape,
                                                     const ConvolutionPlans& plans, const Stopwatch& watch,
                                                     double building_seconds) {
  Trial trial(device_, pass, shape, plans, flush_bytes(device_));
  if (!has_memory_for(trial)) return plans.front();
  trial.begin();
  std::vector<std::int64_t> engines;
  for (const auto& plan : plans) engines.push_back(plan->choice().engine);
  const auto chosen =
      choose_fastest(engines, {.run = [&](std::size_t plan) { return trial.run(plan); },
                               .prepare = [&](std::size_t plan) { return !uses_graphs_ || trial.capture(plan); },
                               .time = [&](std::size_t plan) { return trial.time_as_used(plan); }});
  trial.end();
  reason_ = trial.reason();
  engines_.insert(engines.begin(), engines.end());
  ++passes_;
  candidates_ += std::ssize(plans);
  runs_ += trial.runs();
  inexact_ += trial.inexact();
  building_seconds_ += building_seconds;
  seconds_ += watch.seconds();
  return chosen ? plans[*chosen] : nullptr;
}

std::shared_ptr<ConvolutionPlan> PlanSearch::first_exact(ConvolutionPass pass, const ConvolutionShape& shape,
                                                         std::span<const std::shared_ptr<ConvolutionPlan>> plans) {
  Trial trial(device_, pass, shape, plans, 0);
  if (!has_memory_for(trial)) return plans.front();
  trial.begin();
  std::size_t plan = 0;
  while (plan < plans.size() && !trial.run(plan)) ++plan;
  trial.end();
  reason_ = trial.reason();
  inexact_ += trial.inexact();
  return plan < plans.size() ? plans[plan] : nullptr;
}

std::string PlanSearch::summary() const {
  std::string text;
  if (passes_ > 0) {
    text = fmt::format("{} passes of convolutions, {} candidates of {} engines in {} runs", passes_, candidates_,
                       engines_.size(), runs_);
  }
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (inexact_ > 0) add(fmt::format("{} dropped as inexact", inexact_));
  if (unchecked_passes_ > 0) add(fmt::format("{} passes not checked for lack of memory", unchecked_passes_));
  if (passes_ > 0) add(fmt::format("{:.1f} s ({:.1f} s building plans)", seconds_, building_seconds_));
  if (text.empty()) return {};
  return fmt::format("plan search: {}{}", text,
                     has_time() ? "" : "; this is its time limit, so further passes use cuDNN's first proposal");
}

ConvolutionPlanner::ConvolutionPlanner(const CudaOptions& options)
    : searches_(options.search_plans),
      library_(make_convolution_library(options.device)),
      table_({convolution_library(), query_devices().devices.at(static_cast<std::size_t>(options.device)).name}),
      search_(options.device, options.use_graphs) {}

std::shared_ptr<ConvolutionPlan> ConvolutionPlanner::plan(ConvolutionPass pass, const ConvolutionShape& shape) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<ConvolutionPlan>& plan = plans_[describe(pass, shape)];
  if (!plan) plan = choose(pass, shape);
  return plan;
}

std::string ConvolutionPlanner::algorithm_cache() const {
  const std::lock_guard lock(mutex_);
  return table_.text();
}

bool ConvolutionPlanner::load_algorithm_cache(const std::string& lines) {
  const std::lock_guard lock(mutex_);
  return table_.adopt(lines);
}

std::string ConvolutionPlanner::search_summary() const {
  const std::lock_guard lock(mutex_);
  return search_.summary();
}

// Choices that are known were checked when they were made.
std::shared_ptr<ConvolutionPlan> ConvolutionPlanner::choose(ConvolutionPass pass, const ConvolutionShape& shape) {
  const std::string description = describe(pass, shape);
  if (const auto known = table_.find(description)) {
    if (auto plan = library_->build(pass, shape, *known)) return plan;
  }
  const bool searches = searches_ && search_.has_time();
  const auto chosen = searches ? fastest(pass, shape) : first_exact(pass, shape);
  if (!chosen) {
    throw Error(ErrorSource::usage,
                fmt::format("no algorithm of {} computes the convolution {} correctly: {}; try another --precision or "
                            "another version of the library",
                            convolution_library(), description, search_.reason()));
  }
  table_.note(description, chosen->choice(), searches ? ChosenBy::timing : ChosenBy::proposal);
  return chosen;
}

ConvolutionPlans ConvolutionPlanner::proposals(ConvolutionPass pass, const ConvolutionShape& shape, std::size_t most) {
  ConvolutionPlans plans = library_->propose(pass, shape, most);
  if (!plans.empty()) return plans;
  throw Error(ErrorSource::usage, fmt::format("{} has no way to compute the convolution {}; try another --precision",
                                              convolution_library(), describe(pass, shape)));
}

std::shared_ptr<ConvolutionPlan> ConvolutionPlanner::fastest(ConvolutionPass pass, const ConvolutionShape& shape) {
  const Stopwatch watch;
  const ConvolutionPlans plans = proposals(pass, shape, kMaxCandidates);
  if (plans.size() == 1) return search_.first_exact(pass, shape, plans);
  return search_.fastest(pass, shape, plans, watch, watch.seconds());
}

// Most often this is the first, so the others are built only if it is not.
std::shared_ptr<ConvolutionPlan> ConvolutionPlanner::first_exact(ConvolutionPass pass, const ConvolutionShape& shape) {
  if (auto first = search_.first_exact(pass, shape, proposals(pass, shape, 1))) return first;
  const ConvolutionPlans plans = proposals(pass, shape, kMaxCandidates);
  if (plans.size() == 1) return nullptr;
  return search_.first_exact(pass, shape, std::span(plans).subspan(1));
}

}  // namespace tutti::cuda
