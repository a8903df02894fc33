#include "tutti/data/split_batch_sampler.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <utility>

namespace tutti {
namespace {

// Keeps every product of an epoch or a part number with a length within 64 bits.
constexpr std::int64_t kMostSamples = std::numeric_limits<std::uint32_t>::max();

template <class Choice>
using Words = std::array<std::pair<std::string_view, Choice>, 3>;

constexpr Words<LastBatch> kLastBatchWords{
    {{"keep", LastBatch::keep}, {"discard", LastBatch::discard}, {"rollover", LastBatch::rollover}}};
constexpr Words<Shuffle> kShuffleWords{
    {{"global", Shuffle::global}, {"partition", Shuffle::partition}, {"none", Shuffle::none}}};

template <class Choice>
Choice parse(std::string_view option, const Words<Choice>& words, std::string_view word) {
  for (const auto& [name, choice] : words) {
    if (name == word) return choice;
  }
  throw Error(ErrorSource::usage, fmt::format("{} is {}, {} or {}, not '{}'", option, words[0].first, words[1].first,
                                              words[2].first, word));
}

template <class Choice>
std::string_view word_for(const Words<Choice>& words, Choice choice) {
  for (const auto& [name, value] : words) {
    if (value == choice) return name;
  }
  return "?";
}

}  // namespace

LastBatch parse_last_batch(std::string_view word) { return parse("--last-batch", kLastBatchWords, word); }
std::string_view name_of(LastBatch last_batch) { return word_for(kLastBatchWords, last_batch); }

Shuffle parse_shuffle(std::string_view word) { return parse("--shuffle", kShuffleWords, word); }
std::string_view name_of(Shuffle shuffle) { return word_for(kShuffleWords, shuffle); }

// The orders dealt by all epochs, laid end to end, are one stream: stream position p is place p mod N of deal
// p div N. A batch is a range of the stream, and a part's share of it a range of that range.
class SplitBatchSampler::Deals {
 public:
  Deals(std::int64_t length, std::int64_t batch_size, int num_parts, LastBatch last_batch, OrderRule rule);

  int num_parts() const { return num_parts_; }
  std::int64_t steps(std::int64_t epoch) const;
  std::int64_t steps_before(std::int64_t epoch) const {
    return last_batch_ == LastBatch::rollover ? (epoch * length_ - carried_over(epoch)) / batch_size_
                                              : epoch * steps(epoch);
  }
  IndexRange batch(std::int64_t epoch, std::int64_t step) const;
  std::int64_t remainder(std::int64_t epoch) const;
  std::int64_t carried_over(std::int64_t epoch) const {
    check_epoch(epoch);
    return last_batch_ == LastBatch::rollover ? epoch * length_ % batch_size_ : 0;
  }
  std::int64_t samples_before(std::int64_t epoch, std::int64_t step) const {
    return std::min(step * batch_size_, carried_over(epoch) + length_);
  }
  std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t step, int part);

 private:
  using Order = std::vector<std::int64_t>;

  void check_epoch(std::int64_t epoch) const;
  std::int64_t positions_below(std::int64_t n, int part) const { return part_positions(n, num_parts_, part).begin; }
  std::int64_t taken_below(int part, std::int64_t deal, std::int64_t places) const;
  void append(std::vector<std::int64_t>& list, IndexRange places, std::int64_t deal, int part);
  const Order& order(std::int64_t deal, int part, IndexRange block);

  std::int64_t length_;
  std::int64_t batch_size_;
  int num_parts_;
  LastBatch last_batch_;
  OrderRule rule_;
  std::map<std::pair<std::int64_t, int>, Order> orders_;  // by deal and part; part 0 stands for all when global
};

SplitBatchSampler::Deals::Deals(std::int64_t length, std::int64_t batch_size, int num_parts, LastBatch last_batch,
                                OrderRule rule)
    : length_(length), batch_size_(batch_size), num_parts_(num_parts), last_batch_(last_batch), rule_(rule) {
  if (length < 0 || length > kMostSamples) {
    throw Error(ErrorSource::usage, fmt::format("a data set of {} samples: give 0 to {}", length, kMostSamples));
  }
  if (batch_size < 1 || batch_size > kMostSamples) {
    throw Error(ErrorSource::usage, fmt::format("--batch-size {}: give 1 to {}", batch_size, kMostSamples));
  }
  if (num_parts < 1) throw Error(ErrorSource::usage, fmt::format("--parts {}: give at least 1", num_parts));
}

void SplitBatchSampler::Deals::check_epoch(std::int64_t epoch) const {
  if (epoch < 0 || epoch >= kMostEpochs) {
    throw Error(ErrorSource::usage, fmt::format("epoch {} is outside 0 .. {}", epoch, kMostEpochs - 1));
  }
}

std::int64_t SplitBatchSampler::Deals::steps(std::int64_t epoch) const {
  check_epoch(epoch);
  switch (last_batch_) {
    case LastBatch::keep:
      return (length_ + batch_size_ - 1) / batch_size_;
    case LastBatch::discard:
      return length_ / batch_size_;
    case LastBatch::rollover:
      return (carried_over(epoch) + length_) / batch_size_;
  }
  return 0;
}

// The range of the stream that is the batch of one step.
IndexRange SplitBatchSampler::Deals::batch(std::int64_t epoch, std::int64_t step) const {
  if (step < 0 || step >= steps(epoch)) {
    throw Error(ErrorSource::internal,
                fmt::format("step {} of epoch {}, which has {} steps", step, epoch, steps(epoch)));
  }
  const std::int64_t dealt_before = epoch * length_;
  const std::int64_t begin = dealt_before - carried_over(epoch) + step * batch_size_;
  return {begin, std::min(begin + batch_size_, dealt_before + length_)};
}

std::int64_t SplitBatchSampler::Deals::remainder(std::int64_t epoch) const {
  check_epoch(epoch);
  switch (last_batch_) {
    case LastBatch::keep:
      return 0;
    case LastBatch::discard:
      return length_ % batch_size_;
    case LastBatch::rollover:
      return (carried_over(epoch) + length_) % batch_size_;
  }
  return 0;
}

// How many of the first `places` places of a deal go to parts below `part`.
std::int64_t SplitBatchSampler::Deals::taken_below(int part, std::int64_t deal, std::int64_t places) const {
  const std::int64_t below = positions_below(batch_size_, part);
  const auto from_whole_batches = [&](std::int64_t position) {
    return position / batch_size_ * below + std::min(position % batch_size_, below);
  };
  if (last_batch_ == LastBatch::rollover) {
    return from_whole_batches(deal * length_ + places) - from_whole_batches(deal * length_);
  }
  const std::int64_t in_whole_batches = length_ - length_ % batch_size_;
  if (places <= in_whole_batches) return from_whole_batches(places);
  const std::int64_t short_batch = last_batch_ == LastBatch::keep ? length_ % batch_size_ : 0;
  return from_whole_batches(in_whole_batches) + std::min(places - in_whole_batches, positions_below(short_batch, part));
}

std::vector<std::int64_t> SplitBatchSampler::Deals::indices(std::int64_t epoch, std::int64_t step, int part) {
  const IndexRange whole = batch(epoch, step);
  const std::int64_t first_deal = whole.begin / length_;
  const std::int64_t last_deal = (whole.end - 1) / length_;
  std::erase_if(orders_,
                [&](const auto& entry) { return entry.first.first < first_deal || entry.first.first > last_deal; });

  const IndexRange own = part_positions(whole.size(), num_parts_, part);
  const std::int64_t end = whole.begin + own.end;
  std::vector<std::int64_t> list;
  list.reserve(static_cast<std::size_t>(own.size()));
  for (std::int64_t begin = whole.begin + own.begin; begin < end;) {
    const std::int64_t deal = begin / length_;
    const std::int64_t stop = std::min(end, (deal + 1) * length_);
    append(list, {begin - deal * length_, stop - deal * length_}, deal, part);
    begin = stop;
  }
  return list;
}

// Appends the samples at consecutive places of one deal, all of one part.
void SplitBatchSampler::Deals::append(std::vector<std::int64_t>& list, IndexRange places, std::int64_t deal, int part) {
  if (rule_.shuffle == Shuffle::none) {
    const auto old_size = list.size();
    list.resize(old_size + static_cast<std::size_t>(places.size()));
    std::iota(list.begin() + static_cast<std::ptrdiff_t>(old_size), list.end(), places.begin);
    return;
  }
  IndexRange block{0, length_};
  std::int64_t from = places.begin;
  int key = 0;
  if (rule_.shuffle == Shuffle::partition) {
    block = {taken_below(part, deal, length_), taken_below(part + 1, deal, length_)};
    from = taken_below(part + 1, deal, places.begin) - taken_below(part, deal, places.begin);
    key = part;
  }
  const Order& dealt = order(deal, key, block);
  std::copy_n(dealt.begin() + from, places.size(), std::back_inserter(list));
}

// The samples of a block as one deal shuffles them.
const SplitBatchSampler::Deals::Order& SplitBatchSampler::Deals::order(std::int64_t deal, int part, IndexRange block) {
  const std::pair key(deal, part);
  if (const auto known = orders_.find(key); known != orders_.end()) return known->second;
  Order samples(static_cast<std::size_t>(block.size()));
  std::iota(samples.begin(), samples.end(), block.begin);
  RandomSequence random(rule_.seed, {.item = static_cast<std::uint32_t>(part),
                                     .when = static_cast<std::uint32_t>(deal),
                                     .purpose = random_purpose("shuffle")});
  shuffle(samples, random);
  return orders_.emplace(key, std::move(samples)).first->second;
}

SplitBatchSampler::SplitBatchSampler(std::int64_t length, std::int64_t batch_size, int num_parts, int part_index,
                                     LastBatch last_batch, OrderRule rule)
    : SplitBatchSampler(part_index, std::make_shared<Deals>(length, batch_size, num_parts, last_batch, rule)) {}

SplitBatchSampler::SplitBatchSampler(int part_index, std::shared_ptr<Deals> deals)
    : part_index_(part_index), deals_(std::move(deals)) {
  if (part_index < 0 || part_index >= deals_->num_parts()) {
    throw Error(ErrorSource::usage, fmt::format("part {} is not one of the parts 0 .. {}; see --parts", part_index,
                                                deals_->num_parts() - 1));
  }
}

SplitBatchSampler::~SplitBatchSampler() = default;
SplitBatchSampler::SplitBatchSampler(SplitBatchSampler&&) noexcept = default;
SplitBatchSampler& SplitBatchSampler::operator=(SplitBatchSampler&&) noexcept = default;

std::vector<SplitBatchSampler> SplitBatchSampler::for_parts(std::int64_t length, std::int64_t batch_size, int num_parts,
                                                            IndexRange parts, LastBatch last_batch, OrderRule rule) {
  if (parts.begin < 0 || parts.end < parts.begin || parts.end > num_parts) {
    throw Error(ErrorSource::usage, fmt::format("parts {} .. {} are not among the parts 0 .. {}; see --parts",
                                                parts.begin, parts.end - 1, num_parts - 1));
  }
  const auto deals = std::make_shared<Deals>(length, batch_size, num_parts, last_batch, rule);
  std::vector<SplitBatchSampler> samplers;
  for (std::int64_t part = parts.begin; part < parts.end; ++part) {
    samplers.push_back(SplitBatchSampler(static_cast<int>(part), deals));
  }
  return samplers;
}

std::int64_t SplitBatchSampler::steps(std::int64_t epoch) const { return deals_->steps(epoch); }
std::int64_t SplitBatchSampler::steps_before(std::int64_t epoch) const { return deals_->steps_before(epoch); }

std::int64_t SplitBatchSampler::batch_samples(std::int64_t epoch, std::int64_t step) const {
  return deals_->batch(epoch, step).size();
}

std::int64_t SplitBatchSampler::remainder(std::int64_t epoch) const { return deals_->remainder(epoch); }
std::int64_t SplitBatchSampler::carried_over(std::int64_t epoch) const { return deals_->carried_over(epoch); }

std::int64_t SplitBatchSampler::samples_before(std::int64_t epoch, std::int64_t step) const {
  return deals_->samples_before(epoch, step);
}

std::vector<std::int64_t> SplitBatchSampler::indices(std::int64_t epoch, std::int64_t step) const {
  return deals_->indices(epoch, step, part_index_);
}

}  // namespace tutti
