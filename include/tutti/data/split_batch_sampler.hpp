#pragma once
// Which samples each part gets at each step. Batches are global: each epoch draws an order of all samples, which is
// divided into batches of batch_size, and each batch into parts. Everything is a pure function of the constructor's
// arguments and (epoch, step), so any position can be reached without replaying earlier steps.

#include "tutti/base/enum_names.hpp"
#include "tutti/data/part_map.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

// What happens to the samples at the end of an epoch that do not fill a batch:
//   keep      a last, short batch; ceil(N / B) steps
//   discard   not used in this epoch; floor(N / B) steps
//   rollover  first in the next epoch, in their old order; floor((c_e + N) / B) steps, where
//             c_0 = 0 and c_{e+1} = (c_e + N) mod B
enum class LastBatch { keep, discard, rollover };
constexpr std::array<std::string_view, 3> enum_names(LastBatch) { return {"keep", "discard", "rollover"}; }

//   global     a fresh permutation of all samples in every epoch
//   partition  each part has its own consecutive block of the data set, as large as its number of samples in that
//              epoch, shuffled inside the block
//   none       file order
//   balanced   as many samples with replacement: each from a class, all of which are equally probable
enum class Shuffle { global, partition, none, balanced };
constexpr std::array<std::string_view, 4> enum_names(Shuffle) { return {"global", "partition", "none", "balanced"}; }

struct ShuffleOptions {
  Shuffle shuffle = Shuffle::global;
  std::uint64_t seed = 0;
  std::span<const std::int32_t> labels{};  // of all samples, for `balanced`. Borrowed.
};

class SplitBatchSampler {
 public:
  // Throws a usage error for a length below 0, a batch size or part count below 1, a part out of range, or missing
  // labels.
  SplitBatchSampler(std::int64_t length, std::int64_t batch_size, int num_parts, int part_index, LastBatch last_batch,
                    ShuffleOptions rule = {});
  SplitBatchSampler(SplitBatchSampler&&) noexcept = default;
  SplitBatchSampler& operator=(SplitBatchSampler&&) noexcept = default;

  // Samplers for the parts `parts`. They share the orders that they have drawn.
  static std::vector<SplitBatchSampler> for_parts(std::int64_t length, std::int64_t batch_size, int num_parts,
                                                  IndexRange parts, LastBatch last_batch, ShuffleOptions rule);

  static constexpr std::int64_t kMaxEpochs = std::numeric_limits<std::int32_t>::max();

  // The number of steps of an epoch, and of all epochs before it; equal for all parts. These and the functions below
  // throw a usage error for an epoch outside 0 .. kMaxEpochs - 1.
  std::int64_t steps(std::int64_t epoch) const;
  std::int64_t steps_before(std::int64_t epoch) const;
  // The epoch, counted from 0, of a step of the run, counted from 1.
  std::int64_t epoch_of(std::int64_t step) const;
  // The samples of that step's global batch.
  std::int64_t batch_samples(std::int64_t epoch, std::int64_t step) const { return batch(epoch, step).size(); }
  // Samples that are in no step's batch by the end of the epoch: for rollover c_{e+1}, for discard N mod B.
  std::int64_t remainder(std::int64_t epoch) const;
  // Samples at the front of the epoch's order that earlier ones left over: for rollover c_e, else 0.
  std::int64_t carried_over(std::int64_t epoch) const;
  // The number of samples in the epoch's steps before this one.
  std::int64_t samples_before(std::int64_t epoch, std::int64_t step) const;
  // This part's samples of that step's batch; may be empty. Not thread-safe: it caches the orders last drawn.
  std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t step) const;

 private:
  using Order = std::vector<std::int64_t>;
  // By epoch and part; part 0 for the global shuffle.
  using Orders = std::map<std::pair<std::int64_t, int>, Order>;

  static void check_epoch(std::int64_t epoch);
  IndexRange batch(std::int64_t epoch, std::int64_t step) const;
  std::int64_t samples_of_lower_parts(int part, std::int64_t epoch, std::int64_t positions) const;
  void append(std::vector<std::int64_t>& list, IndexRange positions, std::int64_t epoch) const;
  const Order& order(std::int64_t epoch, int key, IndexRange block) const;

  std::int64_t length_;
  std::int64_t batch_size_;
  int num_parts_;
  int part_;
  LastBatch last_batch_;
  ShuffleOptions rule_;
  std::shared_ptr<Orders> orders_ = std::make_shared<Orders>();
};

}  // namespace tutti
