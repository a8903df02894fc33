#include "backend/cuda/plan_search.hpp"

#include "tutti/base/error.hpp"

#include "backend/cuda/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace tutti::cuda {
namespace {

constexpr std::size_t kSamples = 5;
constexpr std::size_t kFewestSamples = 2;
constexpr float kMuchSlower = 2;

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
  return 4 * static_cast<std::size_t>(cache);
}

// Of two plans, the lesser is chosen.
struct PlanTime {
  bool fails_in_graph = true;
  float milliseconds = std::numeric_limits<float>::infinity();
  auto operator<=>(const PlanTime&) const = default;
};

class PlanTimer {
 public:
  PlanTimer(int device, bool uses_graphs, std::size_t flushed_bytes)
      : uses_graphs_(uses_graphs),
        stream_(make_cuda_stream(device)),
        flushed_(allocate_cuda(device, flushed_bytes)),
        begin_(make_timed_cuda_event(device)),
        end_(make_timed_cuda_event(device)) {}

  CudaStream& stream() { return *stream_; }

  // The median of several runs; of the first runs only, if those are much slower than the best plan so far. The first
  // run is not timed, since libraries load kernels in it.
  PlanTime time(const std::function<void()>& run) {
    try {
      run();
      const auto graph = uses_graphs_ ? captured(run) : nullptr;
      std::vector<float> times;
      while (times.size() < kSamples) {
        times.push_back(milliseconds([&] { graph ? graph->launch(*stream_) : run(); }));
        if (times.size() == kFewestSamples && std::ranges::min(times) > kMuchSlower * best_) break;
      }
      std::ranges::sort(times);
      const float median = times[times.size() / 2];
      best_ = std::min(best_, median);
      return {.fails_in_graph = uses_graphs_ && !graph, .milliseconds = median};
    } catch (const Error& error) {
      if (error.source() != ErrorSource::cudnn) throw;
      return {};
    }
  }

 private:
  // A graph that has run; null if that fails.
  std::unique_ptr<Graph> captured(const std::function<void()>& run) {
    try {
      auto graph = capture_cuda_graph(*stream_, run);
      graph->launch(*stream_);
      stream_->synchronize();
      return graph;
    } catch (const Error& error) {
      if (!is_of_gpu(error)) throw;
      return nullptr;
    }
  }

  float milliseconds(const std::function<void()>& run) {
    check(cudaMemsetAsync(flushed_.data(), 0, flushed_.bytes(), native(*stream_)));
    stream_->record(*begin_);
    run();
    stream_->record(*end_);
    stream_->await(*end_);
    return static_cast<float>(end_->seconds_since(*begin_) * 1e3);
  }

  bool uses_graphs_;
  std::unique_ptr<CudaStream> stream_;
  Buffer flushed_;
  std::unique_ptr<Event> begin_;
  std::unique_ptr<Event> end_;
  float best_ = std::numeric_limits<float>::infinity();
};

}  // namespace

PlanSearch::PlanSearch(int device, bool uses_graphs, double max_seconds)
    : device_(device), uses_graphs_(uses_graphs), max_seconds_(max_seconds) {}

std::size_t PlanSearch::fastest(const ConvolutionShape& shape, Plans plans, const Stopwatch& watch) {
  const TensorBytes bytes = bytes_of_tensors(shape);
  const std::size_t flush = flush_bytes(device_);
  std::size_t scratch_bytes = 0;
  for (const auto& plan : plans) scratch_bytes = std::max(scratch_bytes, plan->scratch_bytes());
  // Twice what is written between runs: half of it stays free.
  const std::size_t wanted = bytes.input + bytes.filters + bytes.output + scratch_bytes + 2 * flush;
  if (wanted >= static_cast<std::size_t>(free_bytes(device_))) return 0;

  PlanTimer timer(device_, uses_graphs_, flush);
  const Buffer scratch = allocate_cuda(device_, scratch_bytes);
  const Buffer input = allocate_cuda(device_, bytes.input);
  const Buffer filters = allocate_cuda(device_, bytes.filters);
  const Buffer output = allocate_cuda(device_, bytes.output);
  for (const Buffer* tensor : {&input, &filters, &output})
    fill_with_random_values(timer.stream(), *tensor, shape.precision);
  std::vector<PlanTime> times;
  for (const auto& plan : plans) {
    times.push_back(timer.time([&] {
      plan->run(timer.stream(), {input.data(), filters.data(), output.data()}, scratch.data());
    }));
    engines_.insert(plan->engine());
  }
  timer.stream().synchronize();
  ++passes_;
  candidates_ += std::ssize(plans);
  seconds_ += watch.seconds();
  return static_cast<std::size_t>(std::ranges::min_element(times) - times.begin());
}

std::string PlanSearch::summary() const {
  if (passes_ == 0) return {};
  return fmt::format("plan search: {} passes of convolutions, {} candidates of {} engines, {:.1f} s{}", passes_,
                     candidates_, engines_.size(), seconds_,
                     has_time() ? "" : "; this is its time limit, so further passes use cuDNN's first proposal");
}

}  // namespace tutti::cuda
