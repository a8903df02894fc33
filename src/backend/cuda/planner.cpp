#include "tutti/base/error.hpp"

#include "backend/cuda/convolution.hpp"
#include "backend/cuda/engine_table.hpp"
#include "backend/cuda/plan_search.hpp"
#include "backend/cuda/runtime.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

namespace tutti::cuda {
namespace {

class SearchingPlanner final : public ConvolutionPlanner {
 public:
  explicit SearchingPlanner(const CudaOptions& options)
      : searches_(options.search_plans),
        library_(make_convolution_library(options.device)),
        table_({convolution_library(), query_devices().devices.at(static_cast<std::size_t>(options.device)).name}),
        search_(options.device, options.use_graphs) {}

  std::shared_ptr<ConvolutionPlan> plan(ConvolutionPass pass, const ConvolutionShape& shape) override {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<ConvolutionPlan>& plan = plans_[describe(pass, shape)];
    if (!plan) plan = choose(pass, shape);
    return plan;
  }

  std::string algorithm_cache() const override {
    const std::lock_guard lock(mutex_);
    return table_.text();
  }

  bool load_algorithm_cache(const std::string& lines) override {
    const std::lock_guard lock(mutex_);
    return table_.adopt(lines);
  }

  std::string search_summary() const override {
    const std::lock_guard lock(mutex_);
    return search_.summary();
  }

 private:
  // Choices that are known were checked when they were made.
  std::shared_ptr<ConvolutionPlan> choose(ConvolutionPass pass, const ConvolutionShape& shape) {
    const std::string description = describe(pass, shape);
    if (const auto known = table_.find(description)) {
      if (auto plan = library_->build(pass, shape, *known)) return plan;
    }
    const bool searches = searches_ && search_.has_time();
    const auto chosen = searches ? fastest(pass, shape) : first_exact(pass, shape);
    if (!chosen) {
      throw Error(
          ErrorSource::usage,
          fmt::format("no algorithm of {} computes the convolution {} correctly: {}; try another --precision or "
                      "another version of the library",
                      convolution_library(), description, search_.reason()));
    }
    table_.note(description, chosen->choice(), searches ? ChosenBy::timing : ChosenBy::proposal);
    return chosen;
  }

  ConvolutionPlans proposals(ConvolutionPass pass, const ConvolutionShape& shape, std::size_t most) {
    ConvolutionPlans plans = library_->propose(pass, shape, most);
    if (!plans.empty()) return plans;
    throw Error(ErrorSource::usage, fmt::format("{} has no way to compute the convolution {}; try another --precision",
                                                convolution_library(), describe(pass, shape)));
  }

  std::shared_ptr<ConvolutionPlan> fastest(ConvolutionPass pass, const ConvolutionShape& shape) {
    const Stopwatch watch;
    const ConvolutionPlans plans = proposals(pass, shape, kMaxCandidates);
    if (plans.size() == 1) return search_.first_exact(pass, shape, plans);
    return search_.fastest(pass, shape, plans, watch, watch.seconds());
  }

  // Most often this is the first, so the others are built only if it is not.
  std::shared_ptr<ConvolutionPlan> first_exact(ConvolutionPass pass, const ConvolutionShape& shape) {
    if (auto first = search_.first_exact(pass, shape, proposals(pass, shape, 1))) return first;
    const ConvolutionPlans plans = proposals(pass, shape, kMaxCandidates);
    if (plans.size() == 1) return nullptr;
    return search_.first_exact(pass, shape, std::span(plans).subspan(1));
  }

  bool searches_;
  std::unique_ptr<ConvolutionLibrary> library_;
  mutable std::mutex mutex_;
  EngineTable table_;
  PlanSearch search_;
  std::map<std::string, std::shared_ptr<ConvolutionPlan>> plans_;  // by description
};

}  // namespace

std::unique_ptr<ConvolutionPlanner> make_convolution_planner(const CudaOptions& options) {
  return std::make_unique<SearchingPlanner>(options);
}

}  // namespace tutti::cuda
