#pragma once
// What a trainer is made from: the objects that it works with, and its options.

#include "tutti/backend/backend.hpp"
#include "tutti/base/enum_names.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/storage/train_state.hpp"
#include "tutti/train/evaluation.hpp"
#include "tutti/train/lr_schedule.hpp"
#include "tutti/train/optimizer.hpp"
#include "tutti/watch/rank_status.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// How gradients are all-reduced. ring: an f32 sum with the bits of a ring, by any algorithm. exact: a sum whose bits do
// not depend on the ranks. sharded: an f32 sum that is reduce-scattered; every rank updates its shard and all-gathers
// the weights. central: rank 0 reduces, updates and broadcasts everything.
enum class Exchange { ring, exact, sharded, central };
constexpr std::array<std::string_view, 4> enum_names(Exchange) { return {"ring", "exact", "sharded", "central"}; }

// The type in which gradients are sent and added. bf16: by `ring`, except for the statistics of batch norm. Integers:
// by `exact`.
enum class Wire { fp32, bf16, int32, int64 };
constexpr std::array<std::string_view, 4> enum_names(Wire) { return {"fp32", "bf16", "int32", "int64"}; }

constexpr bool can_send(Exchange exchange, Wire wire) {
  switch (wire) {
    case Wire::fp32:
      return exchange != Exchange::exact;
    case Wire::bf16:
      return exchange == Exchange::ring;
    case Wire::int32:
    case Wire::int64:
      return exchange == Exchange::exact;
  }
  return false;
}

// 32-bit sums of more parts would have too few bits left for each.
inline constexpr int kMostPartsOfInt32 = 1024;
constexpr Wire default_wire(Exchange exchange, int num_parts) {
  if (exchange != Exchange::exact) return Wire::fp32;
  return num_parts <= kMostPartsOfInt32 ? Wire::int32 : Wire::int64;
}

// Which ranks update the weights and hold the optimizer's state for them.
enum class Owners { all, sharded, root };

struct ExchangeOptions {
  Exchange kind = Exchange::ring;
  bool shard_optimizer = false;  // with exact: each rank updates its shard; sharded always does
  std::optional<Wire> wire{};    // empty: default_wire()

  bool rounds() const { return kind == Exchange::ring && wire == Wire::bf16; }
  Owners owners() const {
    if (kind == Exchange::central) return Owners::root;
    return kind == Exchange::sharded || shard_optimizer ? Owners::sharded : Owners::all;
  }
};

struct PartMapOptions {
  std::vector<int> parts_by_rank{};  // empty: even
  // --part-map auto: starts even and is then balanced by the seconds that each rank's parts take. Does not change the
  // bits of `exact`.
  bool balanced = false;
};
// The largest number of parts that each rank can have during a run. Throws a usage error for a list that does not fit
// the ranks or the parts.
std::vector<int> max_parts_by_rank(const PartMapOptions& options, int num_parts, int num_ranks);

// The samples over which batch norm takes its statistics in training: those of each part, or of all parts of a step,
// whose passes then run concurrently and wait for each other.
enum class BatchNorm { part, global };
constexpr std::array<std::string_view, 2> enum_names(BatchNorm) { return {"part", "global"}; }

// The average of the weights over time, which is evaluated.
struct AverageOptions {
  double decay = 0;            // for each update; 0: no average
  std::int64_t lookahead = 0;  // updates after which it is made and copied to the weights; 0: after each, not copied
};
// Throws a usage error for values out of range.
void validate(const AverageOptions& options);

// Ends the run before its planned end, after an evaluation.
struct EarlyStop {
  double accuracy = 0;        // the best accuracy so far is at least this; 0: never
  std::int64_t patience = 0;  // evaluations without a better accuracy; 0: never
};
// Throws a usage error for a stop by evaluations that the run does not make.
void validate(const EarlyStop& stop, bool evaluates);

// What happens when a value is no longer finite.
enum class OnNotFinite {
  stop,
  skip,  // the step changes no weight
};
constexpr std::array<std::string_view, 2> enum_names(OnNotFinite) { return {"stop", "skip"}; }

struct Safeguards {
  std::int64_t verify_every_steps = 0;  // weights, statistics and optimizer state are compared; 0: never
  OnNotFinite on_not_finite = OnNotFinite::stop;
  std::int64_t audit_every_steps = 0;  // a part is computed by another rank, too, and compared (exact); 0: never
};

// For TrainerOptions::schedule_epochs: the schedule ends where the launch does, --steps included. Old runs, whose
// checkpoints hold no end of the schedule, use it.
inline constexpr std::int64_t kScheduleOfInvocation = -1;

struct TrainerOptions {
  std::int64_t batch_size = 128;  // global
  int num_parts = 1;
  BatchNorm batch_norm = BatchNorm::part;
  ExchangeOptions exchange{};
  PartMapOptions part_map{};  // which rank computes which parts
  int threads = 1;            // of each part
  int max_workers = 1;        // parts that this rank computes concurrently, at most; results are bit-identical
  LastBatch last_batch = LastBatch::keep;
  Shuffle shuffle = Shuffle::global;
  std::uint64_t seed = 0;
  Initializer initializer = Initializer::xavier;
  std::int64_t epochs = 1;
  std::int64_t steps = 0;            // ends the run even inside an epoch; 0: epochs alone end it
  std::int64_t schedule_epochs = 0;  // length of the learning rate's schedule; 0: epochs
  OptimizerOptions optimizer{};
  AverageOptions average{};
  double label_smoothing = 0;
  std::vector<double> class_weights{};  // in the training loss, of mean 1 over the samples; empty: all are 1
  LrPlan learning_rate{};
  std::size_t bucket_bytes = std::size_t{4} << 20;
  int steps_ahead = 1;                 // batches prepared ahead, and steps enqueued on the processor ahead of the one
                                       // that it computes; never changes a bit
  int readers = 1;                     // threads that prepare batches
  ImageRecipe recipe{};                // for training images; test images are only resized to its size
  std::int64_t test_every_epochs = 1;  // and after the last; 0: never
  Views views = Views::none;           // of test images
  EarlyStop early_stop{};
  std::int64_t log_every_steps = 0;
  std::int64_t digest_every_steps = 0;
  std::int64_t checkpoint_every_steps = 0;
  std::int64_t checkpoint_every_epochs = 0;
  bool checkpoint_at_end = false;
  bool checkpoint_at_best = false;  // after every evaluation that beats all before it
  // The arrays of each checkpoint that this rank passes to on_checkpoint; empty: it copies none.
  std::optional<FileShard> file_shard = FileShard{};
  // The same of each state that is kept, for on_kept.
  std::optional<FileShard> kept_shard{};
  Safeguards safeguards{};
  bool reports_samples = false;

  // The workers of a rank with at most this many parts.
  int workers(int parts) const { return batch_norm == BatchNorm::global ? parts : std::clamp(max_workers, 1, parts); }
  LossOptions loss() const { return {.smoothing = label_smoothing, .class_weights = class_weights}; }
};

// All borrowed; the pointers may be null.
struct TrainerContext {
  Backend& backend;
  Communicator& communicator;
  const Network& network;
  const Dataset& train;
  const Dataset* test = nullptr;
  RankStatus* rank_status = nullptr;
  Communicator* norm_communicator = nullptr;  // a second one, on host memory; for BatchNorm::global on several ranks
  std::vector<std::string> hosts{};           // by rank, for messages; empty: unknown
  std::vector<std::string> devices{};         // the processor of each rank; empty: all of one kind
};
// The kind of a processor, which decides the bits, of a text such as Backend::description(). All CPUs are of one kind.
inline std::string processor_kind(const std::string& device) {
  return device.starts_with("cpu") ? "cpu" : device.substr(0, device.find(','));
}
// The ranks with the same kind of processor, itself included. `devices` as in TrainerContext.
std::vector<int> peers_of(int rank, int ranks, const std::vector<std::string>& devices);

}  // namespace tutti
