#pragma once
// Computes the parts of one rank, several of them side by side: each worker has its own activations, stream and sums
// and, but for the first, a thread of its own that sleeps between its turns. The first worker is the thread that
// calls. What comes out does not depend on the number of workers.

#include "tutti/data/batch_loader.hpp"
#include "tutti/nn/part_context.hpp"
#include "tutti/watch/rank_status.hpp"

#include "gradient_total.hpp"

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
  std::size_t number = 0;
  Stream& stream;
  PartContext context;
  Buffer sums;         // LossSums of the parts it has computed
  Buffer sums_before;  // the last step
  Buffer gradients{};  // of one part, unless it only ever computes the first
};

struct WorkersRequest {
  const Network& network;
  NetworkWeights& weights;
  Backend& backend;
  Stream& stream;  // the calling thread's
  int workers = 1;
  int threads = 1;  // of each worker
  double label_smoothing = 0;
  RankStatus& rank_status;  // enters the phases of the first worker, and hears of the progress of all
};

// A rank's parts of one step of the run.
struct PartsOfStep {
  const StepBatches& batches;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  bool measured = false;  // seconds_per_part() is wanted: work is waited for
};

// Adds while the parts are still being computed, in any number of threads: each element is added in the order of the
// parts, so that its bits do not depend on who computes what and when.
class PartSum {
 public:
  // Borrowed. Parts that are all computed on one stream are added in its order, and nobody waits for it.
  enum class Streams { one, several };
  PartSum(GradientTotal& total, Streams streams) : total_(total), streams_(streams) {}

  // Starts the sum of `parts` parts, 1 or more. No other call may be under way.
  void begin(std::size_t parts);
  // Gradients [0, final_elements) of this part are final: adds of them what the part before allows by now. Work on
  // the stream, one thread per part.
  void add(Stream& stream, const PartGradients& part, std::int64_t final_elements);
  // Adds the rest of a part whose gradients are all final. Sleeps until the parts before have been added.
  void finish(Stream& stream, const PartGradients& part);

  // Elements [0, n) of the total hold the sum of all parts.
  std::int64_t complete();
  // Sleeps until they are more than `known`.
  std::int64_t await_more_than(std::int64_t known);

  // Throws `failure` in all that sleep here or would.
  void abandon(std::exception_ptr failure);

 private:
  GradientTotal& total_;
  Streams streams_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> added_;  // by part, the elements added
  std::exception_ptr failure_;
};

class PartWorkers {
 public:
  // All borrowed.
  explicit PartWorkers(const WorkersRequest& request);
  ~PartWorkers();
  PartWorkers(const PartWorkers&) = delete;
  PartWorkers& operator=(const PartWorkers&) = delete;

  std::size_t size() const noexcept { return workers_.size(); }
  // Prepares every worker for batches of this many samples.
  void plan(std::int64_t samples, LayerMode mode);
  // To be called before the first compute(): `total` (borrowed) gets the gradients of at most `parts` parts a step.
  // `stops`, ascending, are the numbers of elements that the caller waits for.
  void collect_gradients(GradientTotal& total, std::int64_t parts, std::vector<std::int64_t> stops = {});

  // Runs `work` for every worker at once and returns when all are done. Throws what the first to fail threw.
  void each(const std::function<void(Worker&)>& work);

  // Called in the calling thread when elements [0, n) of the total hold the sum over the rank's parts, for work that
  // follows on its stream.
  using Ready = std::function<void(std::int64_t final_elements)>;
  // Forward, loss and backward of each batch; gradients are added in the order of the parts.
  void compute(const PartsOfStep& step, const Ready& ready);
  // The sums are again what they were before the last step.
  void restore_sums();
  // By worker, how many of the losses in its sums were not finite: i64 [1] in the processor's memory.
  std::vector<Tensor> bad_losses() const;
  // Of the last step, which was measured: without the time spent in `ready`; 0: there was no sample in it.
  double seconds_per_part() const { return parts_.empty() ? 0 : seconds_ / static_cast<double>(parts_.size()); }

  // Over all workers. Waits.
  LossSums sums();
  void set_sums(const LossSums& sums);
  // Activations, and gradients beside the total.
  std::size_t memory_bytes() const;

 private:
  void run_thread(Worker& worker, const std::stop_token& stop);
  void run_work(Worker& worker) noexcept;
  void compute_parts(Worker& worker, const PartsOfStep& step, const Ready& ready);
  // Whether the part leaves its gradients in the block of the total.
  bool is_in_total(const Worker& worker, std::size_t part) const;
  Tensor gradients_for(const Worker& worker, std::size_t part) const;

  Backend& backend_;
  RankStatus& status_;
  std::vector<std::unique_ptr<Stream>> streams_;  // of all workers but the first
  std::vector<std::unique_ptr<Worker>> workers_;
  GradientTotal* total_ = nullptr;
  std::vector<std::int64_t> stops_;
  std::unique_ptr<PartSum> sum_;
  std::vector<const Batch*> parts_;  // of the step under way: those with samples
  double seconds_ = 0;               // that all of them took

  std::mutex mutex_;
  std::condition_variable_any called_;
  std::condition_variable done_;
  const std::function<void(Worker&)>* work_ = nullptr;
  std::uint64_t calls_ = 0;
  std::size_t busy_ = 0;
  std::exception_ptr failure_;

  std::vector<std::jthread> threads_;  // the last member: stopped and joined before the others go
};

}  // namespace tutti
