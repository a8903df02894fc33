#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"

#include "arguments.hpp"
#include "backoff.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// Staging memory and the events of one operation.
struct Staging {
  Buffer memory;
  std::unique_ptr<Event> ready;        // this rank's values are ready
  std::unique_ptr<Event> copied_out;   // the values are in staging memory
  std::unique_ptr<Event> copied_back;  // the results are in device memory
};

// Work on the device, followed, except in the last step, by a collective on the staging memory.
struct Step {
  std::function<void(Stream&)> device_work;
  std::function<void()> collective;
};

enum class Stage { waiting, copying_out, in_collective, copying_back };

struct Operation {
  OperationMemory memory;
  Staging staging;
  std::deque<Step> steps;  // the first is in progress
  Stage stage = Stage::waiting;
};

// Runs one host collective at a time, overlapped with the copies of other operations.
class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(Backend& backend, std::unique_ptr<Communicator> host)
      : backend_(backend), host_(std::move(host)), out_(backend.make_stream()), back_(backend.make_stream()) {}
  ~StagedCommunicator() override { wait_for_copies(); }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string description() const override { return host_->description() + ", staged in host memory"; }
  Buffer allocate(std::size_t bytes) override { return backend_.allocate(bytes); }

  void all_reduce(const Tensor& values, Stream& stream) override {
    require_summable(values, backend_.memory_space());
    enqueue_one(values, stream, {.out = true, .back = true, .collective = &Communicator::all_reduce});
  }

  void reduce_to_root(const Tensor& values, Stream& stream) override {
    require_summable(values, backend_.memory_space());
    enqueue_one(values, stream, {.out = true, .back = rank() == 0, .collective = &Communicator::reduce_to_root});
  }

  void broadcast(const Tensor& values, Stream& stream) override {
    require_sendable(values, backend_.memory_space());
    enqueue_one(values, stream, {.out = rank() == 0, .back = rank() != 0, .collective = &Communicator::broadcast});
  }

  void reduce_scatter_gather(const ReduceScatterGather& request, Stream& stream) override {
    require_valid_shards(request, size(), backend_.memory_space());
    if (size() == 1) return transform_piece(request, shard_of(request, 0), stream);
    if (request.bounds.back() == 0) return;
    const std::lock_guard lock(mutex_);
    const std::size_t offset_of_results = is_empty(request.values) ? 0 : (request.values.bytes() + 63) / 64 * 64;
    Staging staging = staging_of(offset_of_results + (is_empty(request.results) ? 0 : request.results.bytes()));
    ReduceScatterGather staged = request;
    staged.values =
        is_empty(request.values) ? Tensor{} : staging.memory.view(request.values.shape, request.values.type);
    staged.results = is_empty(request.results)
                         ? Tensor{}
                         : staging.memory.view(request.results.shape, request.results.type, offset_of_results);
    enqueue({.memory = memory_of(request.values, request.results),
             .staging = std::move(staging),
             .steps = steps_of(request, staged)},
            stream);
  }

  bool progress() override {
    const std::lock_guard lock(mutex_);
    return advance_all();
  }

  void finish(Stream& stream) override {
    for (Backoff backoff(kMaxTransferSleep); progress(); backoff.wait()) {
      const std::lock_guard lock(mutex_);
      host_->finish(host_stream_);  // waits for the ranks, if a collective is in progress
    }
    const std::lock_guard lock(mutex_);
    for (const Operation& operation : operations_) stream.wait_event(*operation.staging.copied_back);
  }

  void abort() noexcept override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    host_->abort();
    wait_for_copies();
  }

  std::uint64_t bytes_sent() const override { return host_->bytes_sent(); }

 private:
  // Whether values are copied to the host and back, and the collective in between.
  struct CopyPlan {
    bool out;
    bool back;
    void (Communicator::*collective)(const Tensor&, Stream&);
  };

  void enqueue_one(const Tensor& values, Stream& stream, const CopyPlan& plan) {
    if (size() == 1 || is_empty(values)) return;
    const std::lock_guard lock(mutex_);
    Staging staging = staging_of(values.bytes());
    const Tensor staged = staging.memory.view(values.shape, values.type);
    std::deque<Step> steps(2);
    steps[0].device_work = [=, this](Stream& out) {
      if (plan.out) backend_.copy(out, staged, values);
    };
    steps[0].collective = [=, this] { (host_.get()->*plan.collective)(staged, host_stream_); };
    steps[1].device_work = [=, this](Stream& back) {
      if (plan.back) backend_.copy(back, values, staged);
    };
    enqueue({.memory = memory_of(values), .staging = std::move(staging), .steps = std::move(steps)}, stream);
  }

  // Copies all values out, copies this rank's shard of the sum back, transforms it, copies its results out, and copies
  // the other ranks' results back.
  std::deque<Step> steps_of(const ReduceScatterGather& request, const ReduceScatterGather& staged) {
    const IndexRange own = shard_of(request, rank());
    const bool adds = !is_empty(request.values);
    const bool gathers = !is_empty(request.results);
    std::deque<Step> steps;
    if (adds) {
      steps.push_back({[=, this](Stream& out) { backend_.copy(out, staged.values, request.values); },
                       [=, this] {
                         host_->reduce_scatter_gather({.values = staged.values, .bounds = staged.bounds}, host_stream_);
                       }});
    }
    steps.push_back({[=, this](Stream& both) {
                       if (adds) copy(both, request.values, staged.values, own);
                       transform_piece(request, own, both);
                       if (gathers) copy(both, staged.results, request.results, own);
                     },
                     {}});
    if (gathers) {
      steps.back().collective = [=, this] {
        host_->reduce_scatter_gather({.bounds = staged.bounds, .results = staged.results}, host_stream_);
      };
      steps.push_back({[=, this](Stream& back) {
                         copy(back, request.results, staged.results, {0, own.begin});
                         copy(back, request.results, staged.results, {own.end, request.bounds.back()});
                       },
                       {}});
    }
    return steps;
  }

  void copy(Stream& stream, const Tensor& to, const Tensor& from, const IndexRange& range) {
    if (range.size() > 0) backend_.copy(stream, elements_of(to, range), elements_of(from, range));
  }

  void enqueue(Operation operation, Stream& stream) {
    stream.record(*operation.staging.ready);
    operations_.push_back(std::move(operation));
    advance_all();
  }

  // Reuses the smallest free memory that is large enough, so that every training step reuses that of the previous one.
  Staging staging_of(std::size_t bytes) {
    auto best = free_.end();
    for (auto free = free_.begin(); free != free_.end(); ++free) {
      if (free->memory.bytes() < bytes) continue;
      if (best == free_.end() || free->memory.bytes() < best->memory.bytes()) best = free;
    }
    if (best == free_.end()) {
      return {.memory = backend_.allocate_staging(bytes),
              .ready = backend_.make_event(),
              .copied_out = backend_.make_event(),
              .copied_back = backend_.make_event()};
    }
    Staging staging = std::move(*best);
    free_.erase(best);
    return staging;
  }

  // False once all remaining operations are being copied back.
  bool advance_all() {
    if (aborted_) return false;
    while (!operations_.empty() && operations_.front().stage == Stage::copying_back &&
           operations_.front().staging.copied_back->reached()) {
      free_.push_back(std::move(operations_.front().staging));
      operations_.pop_front();
    }
    for (Operation& operation : operations_) {
      if (operation.stage == Stage::waiting && !start_copy_out(operation)) break;
    }
    const auto next =
        std::ranges::find_if(operations_, [](const Operation& o) { return o.stage != Stage::copying_back; });
    if (next == operations_.end()) return false;
    if (next->stage == Stage::copying_out && next->staging.copied_out->reached()) {
      next->steps.front().collective();
      next->stage = Stage::in_collective;
    }
    if (next->stage != Stage::in_collective || host_->progress()) return true;
    host_->finish(host_stream_);  // rethrows errors; does not wait, since the collective is complete
    next->steps.pop_front();
    begin_step(*next, *back_);
    return next->stage != Stage::copying_back || std::next(next) != operations_.end();
  }

  // An operation on the same memory as an earlier one waits for its results.
  bool start_copy_out(Operation& operation) {
    for (const Operation& earlier : operations_) {
      if (&earlier == &operation) break;
      if (!overlap(earlier.memory, operation.memory)) continue;
      if (earlier.stage != Stage::copying_back) return false;
      out_->wait_event(*earlier.staging.copied_back);
    }
    out_->wait_event(*operation.staging.ready);
    begin_step(operation, *out_);
    return true;
  }

  void begin_step(Operation& operation, Stream& stream) {
    const Step& step = operation.steps.front();
    step.device_work(stream);
    const bool last = !step.collective;
    stream.record(last ? *operation.staging.copied_back : *operation.staging.copied_out);
    operation.stage = last ? Stage::copying_back : Stage::copying_out;
  }

  // This cannot block on other ranks, since copies depend only on this device.
  void wait_for_copies() noexcept {
    try {
      out_->synchronize();
      back_->synchronize();
    } catch (const std::exception&) {
      // A failed device copies nothing more.
    }
  }

  Backend& backend_;
  std::unique_ptr<Communicator> host_;
  IdleStream host_stream_;
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Stream> back_;

  std::mutex mutex_;  // guards all that follows
  std::deque<Operation> operations_;
  std::vector<Staging> free_;
  bool aborted_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(Backend& backend, std::unique_ptr<Communicator> host) {
  return std::make_unique<StagedCommunicator>(backend, std::move(host));
}

}  // namespace tutti
