#pragma once
// A pool of workers that compute the parts of one rank concurrently. Each worker has its own activations, stream and
// sums. The first worker runs in the calling thread, the others in threads that sleep between calls. The results do not
// depend on the number of workers.

#include "tutti/data/batch_loader.hpp"
#include "tutti/nn/network_instance.hpp"
#include "tutti/watch/rank_status.hpp"

#include "gradient_accumulator.hpp"
#include "norm_sums.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti {

struct Worker {
  std::size_t index = 0;
  Stream& stream;
  NetworkInstance instance;
  OwnedTensor sums;         // LossSums of the parts that it has computed
  OwnedTensor sums_before;  // before the last step; empty unless they may be restored
  OwnedTensor gradients{};  // of one part; empty if all its parts use the block of the total
};

struct ReplicaShape;

struct WorkersRequest {
  const Network& network;
  NetworkWeights& weights;
  Backend& backend;
  Stream& stream;  // the calling thread's
  int workers = 1;
  int threads = 1;  // of each worker
  LossOptions loss{};
  bool restores_sums = false;  // restore_sums() may be called
  RankStatus& rank_status;     // receives the phases of the first worker and the progress of all
  // For batch norm over the whole batch; there are then as many workers as parts with samples, at least. Null: over
  // each part alone.
  NormSums* norm_sums = nullptr;
};

// Receives what one part contributes to the sums of a step, all of it for later work on the stream.
class PartObserver {
 public:
  virtual ~PartObserver() = default;
  // These elements of the sum are the part's alone until this returns.
  virtual void on_added(Stream& stream, IndexRange elements) = 0;
  // The part has added its losses to `sums`, which were `before`.
  virtual void on_losses(Stream& stream, const Tensor& before, const Tensor& sums) = 0;
};

// A rank's parts of one step of the run, counted from 0.
struct PartsOfStep {
  const StepBatches& batches;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::size_t first_layer = 0;        // of TrainPass
  bool timed = false;                 // for seconds_per_part(): waits for the work
  bool may_leave_unfinished = false;  // of TrainPass, if the rank computes a single part
  bool checked_in_update = false;     // by FiniteCheck: nothing is waited for between the gradients and the update
  bool delays_exchange = false;       // until all parts are computed and checked
  // Borrowed, or null. The observed part must be one of these; it is added first, so the sum must not depend on the
  // order of the parts.
  PartObserver* observer = nullptr;
  int observed_part = 0;
};

class PartWorkers {
 public:
  // All borrowed.
  explicit PartWorkers(const WorkersRequest& request);

  std::size_t size() const noexcept { return workers_.size(); }
  // Prepares every worker for batches of this many samples.
  void plan(std::int64_t samples, LayerMode mode);
  // Call it before the first compute(). `total` (borrowed) receives the gradients of at most `parts` parts per step.
  // compute() reports as soon as the elements up to each of the `bucket_ends`, which ascend, are ready.
  void collect_gradients(GradientAccumulator& total, std::int64_t parts, std::vector<std::int64_t> bucket_ends = {});

  // Runs `work` for every worker concurrently and returns when all are done. Throws what the first to fail threw.
  void each(const std::function<void(Worker&)>& work);

  // Called in the calling thread when elements [0, n) of the total are the sum over the rank's parts, for later work on
  // its stream.
  using OnGradientsReady = std::function<void(std::int64_t ready_elements)>;
  // Computes forward, loss and backward of each batch, and adds the gradients in the order of the parts, an observed
  // part before all others.
  void compute(const PartsOfStep& step, const OnGradientsReady& on_ready);
  // Digests of what each layer writes in a pass over a single part, whose gradients then are in the block of the total,
  // not added. Adds its losses to `sums`.
  std::vector<std::int64_t> trace(const PartsOfStep& part, const Tensor& sums);
  // The gradients that the last compute() left unfinished, without which the total is incomplete; or null. Borrowed
  // until the next compute().
  UnfinishedGradients* unfinished() const { return workers_.front()->instance.unfinished(); }
  // Resets the sums to their values before the last step. Only if the request says that it may be called.
  void restore_sums();
  // For each worker, the number of its losses that were not finite: i64 [1] in the processor's memory.
  std::vector<Tensor> bad_losses() const;
  // The mean seconds per part of the last step, if it was timed, without the time in OnGradientsReady and for other
  // ranks; 0 if it had no samples.
  double seconds_per_part() const { return parts_.empty() ? 0 : seconds_ / static_cast<double>(parts_.size()); }

  // The sums over all workers. Waits.
  LossSums sums();
  void set_sums(const LossSums& sums);
  // The memory for activations, and for gradients outside the total's block.
  std::size_t memory_bytes() const;
  // What its terms will be if this rank has at most `max_parts`, each with so many samples.
  static std::int64_t estimate_activations(const ReplicaShape& shape, int max_parts, std::int64_t samples);
  static std::int64_t estimate_gradients(const ReplicaShape& shape, int max_parts);

 private:
  void run_thread(Worker& worker, const std::stop_token& stop);
  void run_work(Worker& worker) noexcept;
  void compute_parts(Worker& worker, const PartsOfStep& step, const OnGradientsReady& on_ready);
  // Whether the part's gradients are written to the block total_->gradients() instead of the worker's own block.
  bool uses_block_of_total(const Worker& worker, std::size_t part) const;

  // Parts are added to the total in their order, while any number of threads compute them, so that the bits do not
  // depend on which worker computes which part, or when.
  // Gradients [0, ready_elements) of this part are ready: adds those to which the part before has already been added.
  // Asynchronous.
  void add(Worker& worker, const PartGradients& part, std::int64_t ready_elements);
  // Adds the rest of a part whose gradients are all ready. Waits until the parts before have been added.
  void finish(Worker& worker, const PartGradients& part);
  // Waits until more than `known` elements of the total contain this part, and returns how many do.
  std::int64_t wait_for_more_than(std::int64_t known, std::size_t part);

  Backend& backend_;
  RankStatus& status_;
  bool restores_sums_;
  NormSums* norm_sums_;
  std::vector<std::unique_ptr<Stream>> streams_;  // of all workers except the first
  std::vector<std::unique_ptr<Worker>> workers_;
  GradientAccumulator* total_ = nullptr;
  std::vector<std::int64_t> bucket_ends_;
  std::vector<const Batch*> parts_;  // of the current step, those with samples
  PartObserver* observer_ = nullptr;
  double seconds_ = 0;  // for all of them

  std::mutex mutex_;  // of all that follows
  std::condition_variable_any called_;
  std::condition_variable changed_;  // added_, busy_ or failure_
  std::vector<std::int64_t> added_;  // by part, the elements of the total that contain it
  const std::function<void(Worker&)>* work_ = nullptr;
  std::uint64_t calls_ = 0;
  std::size_t busy_ = 0;
  std::exception_ptr failure_;

  std::vector<std::jthread> threads_;  // last, so that they are joined before the other members are destroyed
};

}  // namespace tutti
