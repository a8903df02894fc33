#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"

#include "arguments.hpp"
#include "backoff.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// Staging memory and the events after which an operation may go on.
struct Staging {
  Buffer memory;
  std::unique_ptr<Event> ready;     // this rank's values are there
  std::unique_ptr<Event> left;      // they are in the staging memory
  std::unique_ptr<Event> returned;  // what came of them is back
};

// Work of the processor; then, but for the last step, work over the ranks with what has left.
struct Step {
  std::function<void(Stream&)> on_processor;
  std::function<void()> over_ranks;
};

enum class Stage { waiting, leaving, over_ranks, returning };

struct Operation {
  std::array<Tensor, 2> memory;  // the second may be empty
  Staging staging;
  std::deque<Step> steps;  // the first is the one under way
  Stage stage = Stage::waiting;
};

bool overlap(const Tensor& one, const Tensor& other) {
  if (is_empty(one) || is_empty(other)) return false;
  const std::less<const std::byte*> before;
  const auto* const begin = static_cast<const std::byte*>(one.data);
  const auto* const other_begin = static_cast<const std::byte*>(other.data);
  return before(begin, other_begin + other.bytes()) && before(other_begin, begin + one.bytes());
}

bool overlap(const Operation& one, const Operation& other) {
  return std::ranges::any_of(one.memory, [&](const Tensor& mine) {
    return std::ranges::any_of(other.memory, [&](const Tensor& theirs) { return overlap(mine, theirs); });
  });
}

// One operation after the other over the ranks, while the next is copied out and the last one back.
class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(Backend& backend, std::unique_ptr<Communicator> host)
      : backend_(backend), host_(std::move(host)), out_(backend.make_stream()), back_(backend.make_stream()) {}
  ~StagedCommunicator() override { leave_no_copies(); }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string description() const override { return host_->description() + ", staged in host memory"; }
  Buffer allocate(std::size_t bytes) override { return backend_.allocate(bytes); }

  void all_reduce(const Tensor& values, Stream& stream) override {
    require_summable(values, backend_.memory_space());
    pass(values, stream, {.out = true, .back = true, .over_ranks = &Communicator::all_reduce});
  }

  void reduce_to_root(const Tensor& values, Stream& stream) override {
    require_summable(values, backend_.memory_space());
    pass(values, stream, {.out = true, .back = rank() == 0, .over_ranks = &Communicator::reduce_to_root});
  }

  void broadcast(const Tensor& values, Stream& stream) override {
    require_passable(values, backend_.memory_space());
    pass(values, stream, {.out = rank() == 0, .back = rank() != 0, .over_ranks = &Communicator::broadcast});
  }

  void reduce_scatter_gather(const ShardedSum& sum, Stream& stream) override {
    require_sharded(sum, size(), backend_.memory_space());
    if (size() == 1) return work_on(sum, shard_of(sum, 0), stream);
    if (sum.bounds.back() == 0) return;
    const std::lock_guard lock(mutex_);
    const std::size_t offset_of_results = is_empty(sum.values) ? 0 : (sum.values.bytes() + 63) / 64 * 64;
    Staging staging = staging_of(offset_of_results + (is_empty(sum.results) ? 0 : sum.results.bytes()));
    ShardedSum staged = sum;
    staged.values = is_empty(sum.values) ? Tensor{} : staging.memory.view(sum.values.shape, sum.values.type);
    staged.results =
        is_empty(sum.results) ? Tensor{} : staging.memory.view(sum.results.shape, sum.results.type, offset_of_results);
    enqueue({.memory = {sum.values, sum.results}, .staging = std::move(staging), .steps = steps_of(sum, staged)},
            stream);
  }

  bool progress() override {
    const std::lock_guard lock(mutex_);
    return drive();
  }

  void finish(Stream& stream) override {
    for (Backoff backoff(kUntilMoved); progress(); backoff.wait()) {
      const std::lock_guard lock(mutex_);
      // It knows best how to wait for its ranks.
      if (is_over_ranks()) host_->finish(host_stream_);
    }
    const std::lock_guard lock(mutex_);
    for (const Operation& operation : operations_) stream.follow(*operation.staging.returned);
  }

  void abandon() noexcept override {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    host_->abandon();
    leave_no_copies();
  }

  std::uint64_t bytes_sent() const override { return host_->bytes_sent(); }

 private:
  // Whether values are copied to the host and back, and what is done in between.
  struct Way {
    bool out;
    bool back;
    void (Communicator::*over_ranks)(const Tensor&, Stream&);
  };

  void pass(const Tensor& values, Stream& stream, const Way& way) {
    if (size() == 1 || is_empty(values)) return;
    const std::lock_guard lock(mutex_);
    Staging staging = staging_of(values.bytes());
    const Tensor staged = staging.memory.view(values.shape, values.type);
    std::deque<Step> steps(2);
    steps[0].on_processor = [=, this](Stream& out) {
      if (way.out) backend_.copy(out, staged, values);
    };
    steps[0].over_ranks = [=, this] { (host_.get()->*way.over_ranks)(staged, host_stream_); };
    steps[1].on_processor = [=, this](Stream& back) {
      if (way.back) backend_.copy(back, values, staged);
    };
    enqueue({.memory = {values, {}}, .staging = std::move(staging), .steps = std::move(steps)}, stream);
  }

  // All values are copied out; this rank's shard of the sum is copied back and worked on; its results are copied out,
  // and the other ranks' back.
  std::deque<Step> steps_of(const ShardedSum& sum, const ShardedSum& staged) {
    const ElementRange own = shard_of(sum, rank());
    const bool adds = !is_empty(sum.values);
    const bool passes = !is_empty(sum.results);
    std::deque<Step> steps;
    if (adds) {
      steps.push_back({[=, this](Stream& out) { backend_.copy(out, staged.values, sum.values); },
                       [=, this] {
                         host_->reduce_scatter_gather(
                             {.values = staged.values, .bounds = staged.bounds, .then = {}, .results = {}},
                             host_stream_);
                       }});
    }
    steps.push_back({[=, this](Stream& both) {
                       if (adds) copy(both, sum.values, staged.values, own);
                       work_on(sum, own, both);
                       if (passes) copy(both, staged.results, sum.results, own);
                     },
                     {}});
    if (passes) {
      steps.back().over_ranks = [=, this] {
        host_->reduce_scatter_gather({.values = {}, .bounds = staged.bounds, .then = {}, .results = staged.results},
                                     host_stream_);
      };
      steps.push_back({[=, this](Stream& back) {
                         copy(back, sum.results, staged.results, {0, own.begin});
                         copy(back, sum.results, staged.results, {own.end, sum.bounds.back()});
                       },
                       {}});
    }
    return steps;
  }

  void copy(Stream& stream, const Tensor& to, const Tensor& from, const ElementRange& range) {
    if (range.elements() > 0) backend_.copy(stream, part_of(to, range), part_of(from, range));
  }

  void enqueue(Operation operation, Stream& stream) {
    stream.record(*operation.staging.ready);
    operations_.push_back(std::move(operation));
    drive();
  }

  // The smallest that will do, so that every step finds the memory of the one before.
  Staging staging_of(std::size_t bytes) {
    auto best = free_.end();
    for (auto free = free_.begin(); free != free_.end(); ++free) {
      if (free->memory.bytes() < bytes) continue;
      if (best == free_.end() || free->memory.bytes() < best->memory.bytes()) best = free;
    }
    if (best == free_.end()) {
      return {.memory = backend_.allocate_staging(bytes),
              .ready = backend_.make_event(),
              .left = backend_.make_event(),
              .returned = backend_.make_event()};
    }
    Staging staging = std::move(*best);
    free_.erase(best);
    return staging;
  }

  // False when all operations are at least being copied back.
  bool drive() {
    if (abandoned_) return false;
    while (!operations_.empty() && operations_.front().stage == Stage::returning &&
           operations_.front().staging.returned->reached()) {
      free_.push_back(std::move(operations_.front().staging));
      operations_.pop_front();
    }
    for (Operation& operation : operations_) {
      if (operation.stage == Stage::waiting && !leave(operation)) break;
    }
    const auto next = std::ranges::find_if(operations_, [](const Operation& o) { return o.stage != Stage::returning; });
    if (next == operations_.end()) return false;
    if (next->stage == Stage::leaving && next->staging.left->reached()) {
      next->steps.front().over_ranks();
      next->stage = Stage::over_ranks;
    }
    if (next->stage != Stage::over_ranks || host_->progress()) return true;
    host_->finish(host_stream_);  // for what it throws: nothing is left to wait for
    next->steps.pop_front();
    begin_step(*next, *back_);
    return next->stage != Stage::returning || std::next(next) != operations_.end();
  }

  bool is_over_ranks() const {
    return std::ranges::any_of(operations_, [](const Operation& o) { return o.stage == Stage::over_ranks; });
  }

  // Operations on the same memory take what earlier ones have left there.
  bool leave(Operation& operation) {
    for (const Operation& earlier : operations_) {
      if (&earlier == &operation) break;
      if (!overlap(earlier, operation)) continue;
      if (earlier.stage != Stage::returning) return false;
      out_->follow(*earlier.staging.returned);
    }
    out_->follow(*operation.staging.ready);
    begin_step(operation, *out_);
    return true;
  }

  void begin_step(Operation& operation, Stream& stream) {
    const Step& step = operation.steps.front();
    step.on_processor(stream);
    const bool last = !step.over_ranks;
    stream.record(last ? *operation.staging.returned : *operation.staging.left);
    operation.stage = last ? Stage::returning : Stage::leaving;
  }

  // Copies wait for nothing but this processor.
  void leave_no_copies() noexcept {
    try {
      out_->synchronize();
      back_->synchronize();
    } catch (const std::exception&) {
      // A processor that failed copies no more.
    }
  }

  Backend& backend_;
  std::unique_ptr<Communicator> host_;
  HostStream host_stream_;
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Stream> back_;

  std::mutex mutex_;  // guards all that follows
  std::deque<Operation> operations_;
  std::vector<Staging> free_;
  bool abandoned_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(Backend& backend, std::unique_ptr<Communicator> host) {
  return std::make_unique<StagedCommunicator>(backend, std::move(host));
}

}  // namespace tutti
