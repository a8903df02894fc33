#pragma once
// Which samples each part sees, step by step. Batches are cut globally: epoch e deals an order of all
// samples, the order is cut into batches of batch_size, and each batch into parts. Everything is a pure
// function of the constructor's arguments and (epoch, step), so that any position can be entered without
// replaying what came before.

#include "tutti/data/part_plan.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

namespace tutti {

// What becomes of the samples that fill no whole batch at the end of an epoch:
//   keep      a last, short batch; ceil(N / B) steps
//   discard   not used in this epoch; floor(N / B) steps
//   rollover  first in the next epoch, in the order that dealt them; floor((c_e + N) / B) steps, where
//             c_0 = 0 and c_{e+1} = (c_e + N) mod B
enum class LastBatch { keep, discard, rollover };
// Throws a usage error that names the three choices and the word.
LastBatch parse_last_batch(std::string_view word);
std::string_view name_of(LastBatch last_batch);

//   global     a fresh permutation of all samples in every epoch
//   partition  each part keeps its own consecutive block of the data set, as large as what it takes of that
//              epoch's deal, shuffled inside the block
//   none       file order
enum class Shuffle { global, partition, none };
Shuffle parse_shuffle(std::string_view word);
std::string_view name_of(Shuffle shuffle);

struct OrderRule {
  Shuffle shuffle = Shuffle::global;
  std::uint64_t seed = 0;
};

class SplitBatchSampler {
 public:
  // Throws a usage error for a length below 0, a batch size or part count below 1, or a part out of range.
  SplitBatchSampler(std::int64_t length, std::int64_t batch_size, int num_parts, int part_index, LastBatch last_batch,
                    OrderRule rule = {});
  ~SplitBatchSampler();
  SplitBatchSampler(SplitBatchSampler&&) noexcept;
  SplitBatchSampler& operator=(SplitBatchSampler&&) noexcept;

  // Samplers for parts `parts` of one plan that share the orders they have dealt.
  static std::vector<SplitBatchSampler> for_parts(std::int64_t length, std::int64_t batch_size, int num_parts,
                                                  IndexRange parts, LastBatch last_batch, OrderRule rule);

  static constexpr std::int64_t kMostEpochs = std::numeric_limits<std::int32_t>::max();

  // Steps of an epoch, and of all epochs before it; equal for all parts. Throws a usage error for an epoch that is not
  // among 0 .. kMostEpochs - 1, as all here do.
  std::int64_t steps(std::int64_t epoch) const;
  std::int64_t steps_before(std::int64_t epoch) const;
  // Samples of the whole batch of that step, over all parts.
  std::int64_t batch_samples(std::int64_t epoch, std::int64_t step) const;
  // Samples dealt by the end of the epoch that no step has seen: for rollover c_{e+1}, for discard N mod B.
  std::int64_t remainder(std::int64_t epoch) const;
  // Samples at the front of the epoch's order that earlier ones left over: for rollover c_e, else 0.
  std::int64_t carried_over(std::int64_t epoch) const;
  // Of the epoch's order, those that the steps before this one take.
  std::int64_t samples_before(std::int64_t epoch, std::int64_t step) const;
  // This part's share of that step's batch, possibly empty. Not thread-safe: keeps the orders last dealt.
  std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t step) const;

 private:
  class Deals;
  SplitBatchSampler(int part_index, std::shared_ptr<Deals> deals);

  int part_index_;
  std::shared_ptr<Deals> deals_;
};

}  // namespace tutti
