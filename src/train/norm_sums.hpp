#pragma once
// The sums of batch norm over the whole batch: the passes of all parts, on all ranks, wait for each other at every
// batch norm. Each value is split into digits, which are added as integers, so that the bits of a sum depend on the
// parts alone: neither on the ranks that compute them nor on the order in which they arrive.

#include "tutti/backend/layer.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/nn/network.hpp"

#include "rank_context.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

// Sums of numbers below 2^73, rounded to multiples of 2^-110. A sum of one number equals it if that is a multiple.
class DigitSums {
 public:
  static constexpr int kDigits = 4;
  static constexpr int kDigitBits = 46;  // sums of the digits of 2^16 numbers stay below 2^62
  static constexpr double kUnit = 0x1p-110;
  static constexpr double kLimit = 0x1p73;

  // The digits of `count` sums, and how many of the added numbers were too large or not finite: i64, borrowed, zero.
  static std::int64_t elements(std::int64_t count) { return count * kDigits + 1; }
  explicit DigitSums(std::span<std::int64_t> digits) : digits_(digits) {}

  // One number for each sum.
  void add(std::span<const double> numbers);
  // NaN if any number was too large or not finite.
  void read(std::span<double> sums) const;

 private:
  std::span<std::int64_t> digits_;
};

class NormSums final : public WholeBatchSum {
 public:
  // All borrowed. The communicator is on host memory and has no other use, since gradients are exchanged meanwhile.
  // Null: there is one rank.
  NormSums(const Network& network, const RankContext& context, Communicator* communicator);
  // Whether the layer calls sum(), once in each pass.
  static bool needs_sums(const NetworkLayer& layer);

  // Begins a step with the passes of this many parts of this rank, which must all run at the same time, the first on
  // the context's stream in the calling thread. A rank without any takes part in all sums of the step here. Collective.
  void begin(std::size_t parts);
  // Begins a pass over one part outside of a step, on the context's stream.
  enum class Replay {
    in_last_step,  // its sums are those of the last step
    isolated       // its values are the sums
  };
  void begin(Replay replay);
  // A part has failed: the others of this rank throw instead of waiting for it.
  void abandon() noexcept;
  // The time in which this rank has waited for others in this step.
  double seconds_waited() const { return seconds_waited_; }
  // Digests of what the part on the context's stream has contributed to each sum since begin(), in their order; 0 for
  // the sums that it did not need.
  std::vector<std::int64_t> digests() const;

  void sum(Stream& stream, const Tensor& values) override;

 private:
  void add_part(Stream& stream, std::vector<double>& values);
  // Adds the digits of all ranks and keeps the sums. Called in the thread that trains. Collective. Waits.
  void all_reduce(std::int64_t count);
  std::span<std::int64_t> digits(std::int64_t count);

  const RankContext& context_;
  Communicator* communicator_;
  std::vector<std::int64_t> counts_;  // of the values of each sum of a forward pass
  Buffer digits_;
  double seconds_waited_ = 0;
  std::optional<Replay> replay_;
  std::vector<std::int64_t> digests_;
  std::vector<std::vector<double>> sums_;  // those of the last step so far

  std::mutex mutex_;  // of all that follows, and of the digits
  std::condition_variable changed_;
  std::size_t parts_ = 0;
  std::size_t arrived_ = 0;  // parts at the present sum
  std::uint64_t sums_done_ = 0;
  bool abandoned_ = false;
};

}  // namespace tutti
