#include "tutti/data/batch_loader.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/timing.hpp"

#include "batch_feed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <mutex>
#include <numeric>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kRowsPerPiece = 32;  // even, for pairs of mixed samples

std::set<std::int64_t> possible_part_batch_sizes(std::int64_t length, const LoaderPlan& plan) {
  const bool is_keep = plan.last_batch == LastBatch::keep;
  const bool has_whole = plan.last_batch == LastBatch::rollover ? length > 0 : length >= plan.batch_size;
  std::set<std::int64_t> sizes;
  for (int part = 0; part < plan.num_parts; ++part) {
    const auto part_samples = [&](std::int64_t n) { return part_positions(n, plan.num_parts, part).size(); };
    if (has_whole) sizes.insert(part_samples(plan.batch_size));
    if (is_keep) sizes.insert(part_samples(length % plan.batch_size));
  }
  sizes.erase(0);
  return sizes;
}

// Sets the sums of the weights of a step's labels, given the samplers of all parts and the parts of this rank.
void set_weights(StepBatches& step, std::span<const SplitBatchSampler> parts, const Dataset& data,
                 const std::vector<double>& class_weights, IndexRange own) {
  if (class_weights.empty()) return;
  double sum = 0;
  for (std::int64_t part = 0; part < std::ssize(parts); ++part) {
    for (const std::int64_t sample : parts[static_cast<std::size_t>(part)].indices(step.epoch, step.step)) {
      const double weight = class_weights.at(static_cast<std::size_t>(data.labels()[data.info().index_of(sample)]));
      sum += weight;
      if (part >= own.begin && part < own.end) step.own_weight += weight;
    }
  }
  step.weight = sum;
}

// What a PartReader reads with. Its samplers are not shared with the readers, which use theirs at the same time.
struct PartPipeline {
  const Dataset& data;
  const LoaderPlan& plan;
  std::vector<SplitBatchSampler> samplers;  // by part
  BatchWriter writer;
  BatchFeed feed;
  StepBatches batches{};

  const StepBatches& read(Stream& stream, int part, std::int64_t epoch, std::int64_t step) {
    const SplitBatchSampler& sampler = samplers.at(static_cast<std::size_t>(part));
    const auto samples = sampler.indices(epoch, step);
    batches = {epoch, step, sampler.batch_samples(epoch, step), {}};
    set_weights(batches, samplers, data, plan.class_weights, {part, part + 1});
    Batch& batch = batches.batches.emplace_back();
    batch.part = part;
    batch.samples = std::ssize(samples);
    batch.first_position = part_positions(batches.global_samples, plan.num_parts, part).begin;
    feed.wait_until_copied(stream, 0);
    const auto item = plan.item_of(step, batch.first_position);
    feed.write(writer, {.samples = samples, .epoch = epoch, .step = step, .first_item = item}, 0, batch.samples);
    feed.enqueue_copy(stream, 0, batch);
    return batches;
  }
};

}  // namespace

class BatchLoader::Prefetcher {
  struct Position {
    std::int64_t epoch = 0;
    std::int64_t step = 0;
  };
  // The unit of work of a reader.
  struct Piece {
    std::size_t part = 0;  // of this rank's
    BatchRows rows;
  };
  struct Slot {
    std::size_t index = 0;
    StepBatches step;
    std::vector<std::vector<std::int64_t>> samples;  // by part of this rank
    std::vector<Piece> pieces;
    std::size_t begun = 0;  // pieces are started in order
    std::size_t done = 0;
    std::exception_ptr failure;
    std::size_t failed_piece = 0;

    bool has_pieces_left() const { return failure == nullptr && begun < pieces.size(); }
    bool is_complete() const { return done == begun && !has_pieces_left(); }
  };
  using Lock = std::unique_lock<std::mutex>;

 public:
  Prefetcher(const Dataset& data, Backend& backend, const LoaderPlan& plan)
      : data_(data),
        plan_(plan),
        recipe_(with_image_shape(plan.recipe, data.info())),
        length_(data.info().samples),
        sampler_(length_, plan.batch_size, plan.num_parts, 0, plan.last_batch, plan.order),
        all_parts_(samplers_of({0, plan.class_weights.empty() ? 0 : plan.num_parts})),
        part_batch_sizes_(possible_part_batch_sizes(length_, plan)),
        context_(data, backend, recipe_) {
    if (plan.steps_ahead < 0 || plan.readers < 1) {
      throw Error(ErrorSource::usage,
                  fmt::format("{} steps prepared ahead by {} readers: give 0 or more, and 1 or more", plan.steps_ahead,
                              plan.readers));
    }
    position_ = first_from({0, 0});
    slots_.resize(static_cast<std::size_t>(plan.steps_ahead) + 1);
    for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].index = i;
    for (int i = 0; i < plan.readers; ++i) writers_.emplace_back(data, recipe_);
    assign(plan.parts);
  }

  const SplitBatchSampler& sampler() const { return sampler_; }
  std::vector<std::int64_t> part_batch_sizes() const { return {part_batch_sizes_.begin(), part_batch_sizes_.end()}; }
  PreparedImages prepared() const {
    const Lock lock(mutex_);
    return prepared_;
  }
  std::int64_t most_samples() const { return part_batch_sizes_.empty() ? 0 : *part_batch_sizes_.rbegin(); }

  void seek(std::int64_t epoch, std::int64_t step) {
    if (step < 0) throw Error(ErrorSource::internal, fmt::format("step {} of epoch {}", step, epoch));
    const Position target = first_from({epoch, step});
    stop();
    start(target);
  }

  // Everything that may throw comes first. Then the step that next() would have returned is opened again.
  void assign(IndexRange parts) {
    auto samplers = samplers_of(parts);
    std::vector<BatchFeed> more;
    while (feeds_.size() + more.size() < samplers.size()) more.emplace_back(context_, most_samples(), slots_.size());

    stop();
    parts_ = parts;
    samplers_ = std::move(samplers);
    std::ranges::move(more, std::back_inserter(feeds_));
    start(queue_.empty() ? position_ : Position{queue_.front()->step.epoch, queue_.front()->step.step});
  }

  const StepBatches& next(Stream& stream) {
    Slot& slot = await_prepared(stream);
    for (std::size_t i = 0; i < slot.step.batches.size(); ++i) {
      feeds_[i].enqueue_copy(stream, slot.index, slot.step.batches[i]);
    }
    return slot.step;
  }

  PartReader part_reader() const {
    const std::shared_ptr<PartPipeline> pipeline(new PartPipeline{.data = data_,
                                                                  .plan = plan_,
                                                                  .samplers = samplers_of({0, plan_.num_parts}),
                                                                  .writer = BatchWriter(data_, recipe_),
                                                                  .feed = BatchFeed(context_, most_samples(), 1)});
    return std::bind_front(&PartPipeline::read, pipeline);
  }

 private:
  std::vector<SplitBatchSampler> samplers_of(IndexRange parts) const {
    return SplitBatchSampler::for_parts(length_, plan_.batch_size, plan_.num_parts, parts, plan_.last_batch,
                                        plan_.order);
  }

  bool has_steps() const {
    return length_ > 0 && (plan_.last_batch != LastBatch::discard || length_ >= plan_.batch_size);
  }

  // The position itself, or the first step of the next epoch with steps.
  Position first_from(Position position) const {
    if (!has_steps()) return {position.epoch, 0};
    while (position.step >= sampler_.steps(position.epoch)) position = {position.epoch + 1, 0};
    return position;
  }

  void plan_step(Slot& slot, Position position) {
    if (!has_steps()) {
      throw Error(ErrorSource::usage,
                  fmt::format("{} samples do not fill a batch of {}: give a smaller --batch-size or "
                              "--last-batch keep",
                              length_, plan_.batch_size));
    }
    const std::int64_t global = sampler_.batch_samples(position.epoch, position.step);
    slot.step = {position.epoch, position.step, global, {}};
    set_weights(slot.step, all_parts_, data_, plan_.class_weights, parts_);
    slot.samples.clear();
    slot.pieces.clear();
    for (std::size_t i = 0; i < samplers_.size(); ++i) {
      const auto& samples = slot.samples.emplace_back(samplers_[i].indices(position.epoch, position.step));
      const auto count = static_cast<std::int64_t>(samples.size());
      Batch& batch = slot.step.batches.emplace_back();
      batch.part = static_cast<int>(parts_.begin) + static_cast<int>(i);
      batch.samples = count;
      batch.first_position = part_positions(global, plan_.num_parts, batch.part).begin;
      for (std::int64_t row = 0; row < count; row += kRowsPerPiece) {
        const auto rows = static_cast<std::size_t>(std::min(kRowsPerPiece, count - row));
        slot.pieces.push_back({i,
                               {.samples = {samples.data() + row, rows},
                                .epoch = position.epoch,
                                .step = position.step,
                                .first_row = row,
                                .first_item = plan_.item_of(position.step, batch.first_position + row)}});
      }
    }
  }

  // Returns when every reader has finished its current piece.
  void stop() {
    for (std::jthread& reader : readers_) reader.request_stop();
    readers_.clear();
  }

  // Drops the prefetched steps.
  void start(Position first) {
    position_ = first;
    queue_.clear();
    free_.clear();
    for (Slot& slot : slots_) {
      if (&slot != in_use_) free_.push_back(&slot);
    }
    if (plan_.steps_ahead == 0) return;
    for (BatchWriter& writer : writers_) {
      readers_.emplace_back([this, &writer](const std::stop_token& end) { prepare_steps(end, writer); });
    }
  }

  // Without readers, prepares the step in this thread.
  Slot& await_prepared(Stream& stream) {
    if (in_use_ != nullptr) {
      for (BatchFeed& feed : feeds_) feed.wait_until_copied(stream, in_use_->index);
    }
    Lock lock(mutex_);
    if (in_use_ != nullptr) free_.push_back(std::exchange(in_use_, nullptr));
    changed_.notify_all();
    const auto is_prepared = [this] { return !queue_.empty() && queue_.front()->is_complete(); };
    while (plan_.steps_ahead == 0 && !is_prepared()) work(writers_.front(), lock);
    changed_.wait(lock, is_prepared);
    if (queue_.front()->failure != nullptr) std::rethrow_exception(queue_.front()->failure);
    in_use_ = queue_.front();
    queue_.pop_front();
    return *in_use_;
  }

  void prepare_steps(const std::stop_token& end, BatchWriter& writer) {
    lower_priority();
    Lock lock(mutex_);
    const auto has_work = [this] { return next_slot_with_work() != nullptr || may_begin_step(); };
    while (changed_.wait(lock, end, has_work) && !end.stop_requested()) work(writer, lock);
  }

  void work(BatchWriter& writer, Lock& lock) {
    if (Slot* const slot = next_slot_with_work()) {
      process_piece(*slot, writer, lock);
    } else {
      begin_step(lock);
    }
  }

  Slot* next_slot_with_work() {
    const auto slot = std::ranges::find_if(queue_, &Slot::has_pieces_left);
    return slot == queue_.end() ? nullptr : *slot;
  }

  // After a failure the later steps are not needed.
  bool may_begin_step() const {
    return !is_beginning_ && !free_.empty() &&
           std::ranges::none_of(queue_, [](const Slot* slot) { return slot->failure != nullptr; });
  }

  void begin_step(Lock& lock) {
    Slot* const slot = free_.back();
    free_.pop_back();
    is_beginning_ = true;
    lock.unlock();
    slot->begun = slot->done = 0;
    slot->failure = nullptr;
    try {
      plan_step(*slot, position_);
      position_ = first_from({position_.epoch, position_.step + 1});
    } catch (...) {
      slot->failure = std::current_exception();
    }
    lock.lock();
    is_beginning_ = false;
    queue_.push_back(slot);
    changed_.notify_all();
  }

  void process_piece(Slot& slot, BatchWriter& writer, Lock& lock) {
    const std::size_t piece = slot.begun++;
    lock.unlock();
    std::exception_ptr failure;
    const auto& [part, rows] = slot.pieces[piece];
    const double begin = thread_cpu_seconds();
    try {
      feeds_[part].write(writer, rows, slot.index, slot.step.batches[part].samples);
      plan_.after_piece();
    } catch (...) {
      failure = std::current_exception();
    }
    const double took = thread_cpu_seconds() - begin;
    lock.lock();
    prepared_.images += std::ssize(rows.samples);
    prepared_.core_seconds += took;
    ++slot.done;
    // The failure of the first piece in order is reported, independent of thread timing.
    if (failure != nullptr && (slot.failure == nullptr || piece < slot.failed_piece)) {
      slot.failure = failure;
      slot.failed_piece = piece;
    }
    if (slot.is_complete()) changed_.notify_all();
  }

  const Dataset& data_;
  const LoaderPlan plan_;
  const ImageRecipe recipe_;
  const std::int64_t length_;
  const SplitBatchSampler sampler_;
  const std::vector<SplitBatchSampler> all_parts_;  // empty without class weights
  const std::set<std::int64_t> part_batch_sizes_;
  IndexRange parts_;                         // this rank's
  std::vector<SplitBatchSampler> samplers_;  // by part of this rank
  std::vector<BatchWriter> writers_;         // one per reader
  TransferContext context_;
  std::vector<BatchFeed> feeds_;  // by part of this rank; never shrinks
  std::vector<Slot> slots_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  Position position_;  // of the step to begin next; used only by the thread that begins a step
  bool is_beginning_ = false;
  std::vector<Slot*> free_;
  std::deque<Slot*> queue_;  // begun steps, in order
  Slot* in_use_ = nullptr;   // returned by the last next()
  PreparedImages prepared_;

  std::vector<std::jthread> readers_;  // the last member, so that it is joined before the others are destroyed
};

BatchLoader::BatchLoader(const Dataset& data, Backend& backend, const LoaderPlan& plan)
    : prefetcher_(std::make_unique<Prefetcher>(data, backend, plan)) {}

BatchLoader::~BatchLoader() = default;

const SplitBatchSampler& BatchLoader::sampler() const { return prefetcher_->sampler(); }
std::vector<std::int64_t> BatchLoader::part_batch_sizes() const { return prefetcher_->part_batch_sizes(); }
void BatchLoader::seek(std::int64_t epoch, std::int64_t step) { prefetcher_->seek(epoch, step); }
void BatchLoader::assign(IndexRange parts) { prefetcher_->assign(parts); }
const StepBatches& BatchLoader::next(Stream& stream) { return prefetcher_->next(stream); }
PreparedImages BatchLoader::prepared() const { return prefetcher_->prepared(); }
PartReader BatchLoader::make_part_reader() const { return prefetcher_->part_reader(); }

struct ChunkReader::Pipeline {
  Pipeline(const Dataset& data, Backend& backend, const ImageRecipe& recipe, std::int64_t most)
      : most_samples(most), writer(data, recipe), context(data, backend, recipe), feed(context, most, 1) {}

  std::int64_t most_samples;
  BatchWriter writer;
  TransferContext context;
  BatchFeed feed;
  std::vector<std::int64_t> samples{};
};

ChunkReader::ChunkReader(const Dataset& data, Backend& backend, const ImageRecipe& recipe, std::int64_t most_samples) {
  ImageRecipe fitting = with_image_shape(recipe, data.info());
  fitting.augment = {};
  pipeline_ = std::make_unique<Pipeline>(data, backend, fitting, most_samples);
}

ChunkReader::~ChunkReader() = default;

Batch ChunkReader::read(Stream& stream, std::int64_t first, std::int64_t count, const ChunkView& view) {
  auto& [most_samples, writer, context, feed, samples] = *pipeline_;
  if (count < 0 || count > most_samples) {
    throw Error(ErrorSource::internal,
                fmt::format("a chunk of {} samples from a reader made for {}", count, most_samples));
  }
  samples.resize(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), first);
  feed.wait_until_copied(stream, 0);
  feed.write(writer, {.samples = samples, .view = view}, 0, count);
  Batch batch;
  batch.samples = count;
  feed.enqueue_copy(stream, 0, batch);
  return batch;
}

}  // namespace tutti
