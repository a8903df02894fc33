#pragma once
// Chooses among the plans that a library proposes for a pass of a convolution, by running them, and remembers the
// choice.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/base/timing.hpp"

#include "backend/cuda/engine_table.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>

namespace tutti::cuda {

// Of one run, in milliseconds. They differ where the host enqueued the run too late, as when a library loads its
// kernels: the GPU may have waited for it.
struct RunTime {
  float min = 0;
  float max = 0;
};

// How a search runs plan i.
struct PlanRuns {
  // The first time, and the same later; empty if the plan cannot be used.
  std::function<std::optional<RunTime>(std::size_t plan)> run;
  // Prepares the plan for time(), as it will be used; false if that fails.
  std::function<bool(std::size_t plan)> prepare;
  // Milliseconds.
  std::function<float(std::size_t plan)> time;
};

// The fastest of plans with these engines: runs each once, and again those that are nearly as fast as the best. An
// engine that is far too slow with one of its settings is not tried with others. Plans that cannot be prepared are
// chosen only if none can. Empty if no plan can be used.
std::optional<std::size_t> choose_fastest(std::span<const std::int64_t> engines, const PlanRuns& runs);

class PlanSearch {
 public:
  // After `max_seconds`, has_time() is false: the caller is to use the first exact plan, so that a start takes no
  // longer.
  PlanSearch(int device, bool uses_graphs, double max_seconds = 60);

  bool has_time() const { return seconds_ < max_seconds_; }
  // Returns the fastest plan, or null if none can be used. Plans that fail or whose results are off are dropped; with
  // `uses_graphs`, plans that fail in a CUDA graph are used only if all do. Returns the first, unchecked, if the device
  // has too little free memory. The library built the plans in the first `building_seconds` of `watch`.
  std::shared_ptr<ConvolutionPlan> fastest(ConvolutionPass pass, const ConvolutionShape& shape,
                                           const ConvolutionPlans& plans, const Stopwatch& watch,
                                           double building_seconds);
  // The first plan whose results are right, without timing; as above.
  std::shared_ptr<ConvolutionPlan> first_exact(ConvolutionPass pass, const ConvolutionShape& shape,
                                               std::span<const std::shared_ptr<ConvolutionPlan>> plans);
  // Why the last call returned null: "3 fail, 2 are off by at least 5e-4, where 1e-5 is allowed".
  const std::string& reason() const { return reason_; }
  // "plan search: 33 passes of convolutions, 290 candidates of 21 engines in 340 runs, 3 dropped as inexact, 1.4 s
  // (0.6 s building plans)"; empty if there is nothing to report.
  std::string summary() const;

 private:
  class Trial;

  bool has_memory_for(const Trial& trial);

  int device_;
  bool uses_graphs_;
  double max_seconds_;
  double seconds_ = 0;
  double building_seconds_ = 0;
  std::int64_t passes_ = 0;
  std::int64_t candidates_ = 0;
  std::int64_t runs_ = 0;
  std::int64_t inexact_ = 0;
  std::int64_t unchecked_passes_ = 0;
  std::string reason_;
  std::set<std::int64_t> engines_{};
};

// Chooses one plan for each pass and shape. Thread-safe.
class ConvolutionPlanner {
 public:
  explicit ConvolutionPlanner(const CudaOptions& options);

  // Runs plans, and waits for the device, unless the choice is known. Throws a usage error that names the shape if the
  // library cannot compute it.
  std::shared_ptr<ConvolutionPlan> plan(ConvolutionPass pass, const ConvolutionShape& shape);
  // See Backend.
  std::string algorithm_cache() const;
  bool load_algorithm_cache(const std::string& lines);
  std::string search_summary() const;

 private:
  std::shared_ptr<ConvolutionPlan> choose(ConvolutionPass pass, const ConvolutionShape& shape);
  ConvolutionPlans proposals(ConvolutionPass pass, const ConvolutionShape& shape, std::size_t most);
  std::shared_ptr<ConvolutionPlan> fastest(ConvolutionPass pass, const ConvolutionShape& shape);
  std::shared_ptr<ConvolutionPlan> first_exact(ConvolutionPass pass, const ConvolutionShape& shape);

  bool searches_;
  std::unique_ptr<ConvolutionLibrary> library_;
  mutable std::mutex mutex_;
  EngineTable table_;
  PlanSearch search_;
  std::map<std::string, std::shared_ptr<ConvolutionPlan>> plans_;  // by description
};

}  // namespace tutti::cuda
