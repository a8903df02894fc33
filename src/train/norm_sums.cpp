#include "norm_sums.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>
#include <variant>

namespace tutti {
namespace {

constexpr double kBase = static_cast<double>(std::int64_t{1} << DigitSums::kDigitBits);
constexpr double kHighestUnit = DigitSums::kUnit * kBase * kBase * kBase;
static_assert(DigitSums::kDigits == 4);

}  // namespace

void DigitSums::add(std::span<const double> numbers) {
  auto digit = digits_.begin();
  for (double rest : numbers) {
    if (!(std::abs(rest) < kLimit)) {
      ++digits_.back();
      rest = 0;
    }
    double unit = kHighestUnit;
    for (int i = 1; i < kDigits; ++i, unit /= kBase) {
      const double whole = std::trunc(rest / unit);
      *digit++ += static_cast<std::int64_t>(whole);
      rest -= whole * unit;
    }
    *digit++ += std::llrint(rest / unit);
  }
}

void DigitSums::read(std::span<double> sums) const {
  auto digit = digits_.begin();
  for (double& sum : sums) {
    sum = digits_.back() > 0 ? std::numeric_limits<double>::quiet_NaN() : 0;
    double unit = kHighestUnit;
    for (int i = 0; i < kDigits; ++i, unit /= kBase) sum += static_cast<double>(*digit++) * unit;
  }
}

bool NormSums::needs_sums(const NetworkLayer& layer) {
  return std::holds_alternative<BatchNormSpec>(layer.spec) && !layer.frozen;
}

NormSums::NormSums(const Network& network, const RankContext& context, Communicator* communicator)
    : context_(context), communicator_(communicator) {
  if (communicator == nullptr && context.communicator.size() > 1) {
    throw Error(ErrorSource::internal, "batch norm over the whole batch needs a communicator of its own");
  }
  // Two sums for each channel, and the number of values.
  for (const NetworkLayer& layer : network.layers()) {
    if (needs_sums(layer)) counts_.push_back(2 * layer.output[0] + 1);
  }
  if (counts_.empty()) return;
  const auto bytes = static_cast<std::size_t>(DigitSums::elements(std::ranges::max(counts_))) * sizeof(std::int64_t);
  digits_ = communicator == nullptr ? allocate_host(bytes) : communicator->allocate(bytes);
}

void NormSums::begin(std::size_t parts) {
  seconds_waited_ = 0;
  parts_ = parts;
  arrived_ = 0;
  abandoned_ = false;
  replay_.reset();
  digests_.clear();
  sums_.clear();
  if (parts > 0) return;
  const auto add_nothing = [this](std::int64_t count) {
    std::ranges::fill(digits(count), 0);
    all_reduce(count);
  };
  std::ranges::for_each(counts_, add_nothing);
  std::ranges::for_each(counts_ | std::views::reverse, add_nothing);
}

void NormSums::begin(Replay replay) {
  replay_ = replay;
  digests_.clear();
}

std::vector<std::int64_t> NormSums::digests() const {
  std::vector<std::int64_t> all = digests_;
  all.resize(2 * counts_.size());
  return all;
}

void NormSums::abandon() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    abandoned_ = true;
  }
  changed_.notify_all();
}

void NormSums::sum(Stream& stream, const Tensor& values) {
  std::vector<double> numbers(static_cast<std::size_t>(values.elements()));
  context_.backend.copy(stream, {numbers.data(), values.shape, ElementType::f64}, values);
  stream.synchronize();
  if (&stream == &context_.stream) {
    const std::size_t index = digests_.size();
    digests_.push_back(static_cast<std::int64_t>(digest("sums", numbers)));
    if (replay_ == Replay::in_last_step) numbers = sums_.at(index);
  }
  if (!replay_) add_part(stream, numbers);
  context_.backend.copy(stream, values, {numbers.data(), values.shape, ElementType::f64});
  stream.synchronize();
}

// The thread that trains waits for this rank's other parts and then for the other ranks; the others wait for it.
void NormSums::add_part(Stream& stream, std::vector<double>& values) {
  const std::int64_t count = std::ssize(values);
  std::unique_lock lock(mutex_);
  const std::uint64_t done_before = sums_done_;
  if (arrived_ == 0) std::ranges::fill(digits(count), 0);
  DigitSums(digits(count)).add(values);
  if (++arrived_ == parts_) changed_.notify_all();
  const bool trains = &stream == &context_.stream;
  changed_.wait(lock, [&] { return abandoned_ || (trains ? arrived_ == parts_ : sums_done_ > done_before); });
  if (abandoned_) throw Error(ErrorSource::internal, "another part of this rank has failed");
  if (trains) {
    all_reduce(count);
    arrived_ = 0;
    ++sums_done_;
    changed_.notify_all();
  }
  values = sums_.back();
}

void NormSums::all_reduce(std::int64_t count) {
  const std::span<std::int64_t> all = digits(count);
  if (communicator_ != nullptr) {
    const Stopwatch watch;
    context_.status.wait_for_ranks([&] {
      communicator_->all_reduce(digits_.view(Shape{std::ssize(all)}, ElementType::i64), context_.stream);
      communicator_->finish(context_.stream);
      return true;
    });
    seconds_waited_ += watch.seconds();
  }
  DigitSums(all).read(sums_.emplace_back(static_cast<std::size_t>(count)));
}

std::span<std::int64_t> NormSums::digits(std::int64_t count) {
  return {static_cast<std::int64_t*>(digits_.data()), static_cast<std::size_t>(DigitSums::elements(count))};
}

}  // namespace tutti
