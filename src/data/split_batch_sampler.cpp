#include "tutti/data/split_batch_sampler.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <ranges>
#include <span>

namespace tutti {
namespace {

// Keeps the product of an epoch or a part number with a length below 2^63.
constexpr std::int64_t kMaxSamples = std::numeric_limits<std::uint32_t>::max();

void draw_balanced(std::span<const std::int32_t> labels, RandomSequence random, std::span<std::int64_t> samples) {
  std::map<std::int32_t, std::vector<std::int64_t>> by_label;
  for (std::size_t i = 0; i < labels.size(); ++i) by_label[labels[i]].push_back(static_cast<std::int64_t>(i));
  std::vector<std::span<const std::int64_t>> classes;
  for (const auto& [label, members] : by_label) classes.emplace_back(members);
  const auto pick = [&](const auto& from) { return from[random.below(static_cast<std::uint32_t>(from.size()))]; };
  for (std::int64_t& sample : samples) sample = pick(pick(classes));
}

}  // namespace

SplitBatchSampler::SplitBatchSampler(std::int64_t length, std::int64_t batch_size, int num_parts, int part_index,
                                     LastBatch last_batch, ShuffleOptions rule)
    : length_(length),
      batch_size_(batch_size),
      num_parts_(num_parts),
      part_(part_index),
      last_batch_(last_batch),
      rule_(rule) {
  if (length < 0 || length > kMaxSamples) {
    throw Error(ErrorSource::usage, fmt::format("a data set of {} samples: give 0 to {}", length, kMaxSamples));
  }
  if (batch_size < 1 || batch_size > kMaxSamples) {
    throw Error(ErrorSource::usage, fmt::format("--batch-size {}: give 1 to {}", batch_size, kMaxSamples));
  }
  if (num_parts < 1) throw Error(ErrorSource::usage, fmt::format("--parts {}: give at least 1", num_parts));
  if (part_index < 0 || part_index >= num_parts) {
    throw Error(ErrorSource::usage,
                fmt::format("part {} is not one of the parts 0 .. {}; see --parts", part_index, num_parts - 1));
  }
  if (rule.shuffle == Shuffle::balanced && std::ssize(rule.labels) != length) {
    throw Error(ErrorSource::usage,
                "--shuffle balanced needs the labels of all samples, which this data set does not know without reading "
                "its images: use --shuffle global");
  }
}

std::vector<SplitBatchSampler> SplitBatchSampler::for_parts(std::int64_t length, std::int64_t batch_size, int num_parts,
                                                            IndexRange parts, LastBatch last_batch,
                                                            ShuffleOptions rule) {
  std::vector<SplitBatchSampler> samplers;
  for (std::int64_t part = parts.begin; part < parts.end; ++part) {
    samplers.emplace_back(length, batch_size, num_parts, static_cast<int>(part), last_batch, rule);
    samplers.back().orders_ = samplers.front().orders_;
  }
  return samplers;
}

void SplitBatchSampler::check_epoch(std::int64_t epoch) {
  if (epoch < 0 || epoch >= kMaxEpochs) {
    throw Error(ErrorSource::usage, fmt::format("epoch {} is outside 0 .. {}", epoch, kMaxEpochs - 1));
  }
}

std::int64_t SplitBatchSampler::carried_over(std::int64_t epoch) const {
  check_epoch(epoch);
  return last_batch_ == LastBatch::rollover ? epoch * length_ % batch_size_ : 0;
}

std::int64_t SplitBatchSampler::steps(std::int64_t epoch) const {
  const std::int64_t samples = carried_over(epoch) + length_;
  return (last_batch_ == LastBatch::keep ? samples + batch_size_ - 1 : samples) / batch_size_;
}

std::int64_t SplitBatchSampler::steps_before(std::int64_t epoch) const {
  return last_batch_ == LastBatch::rollover ? (epoch * length_ - carried_over(epoch)) / batch_size_
                                            : epoch * steps(epoch);
}

std::int64_t SplitBatchSampler::epoch_of(std::int64_t step) const {
  const auto epochs = std::views::iota(std::int64_t{0}, kMaxEpochs - 1);
  return *std::ranges::partition_point(epochs, [&](std::int64_t epoch) { return steps_before(epoch + 1) < step; });
}

std::int64_t SplitBatchSampler::remainder(std::int64_t epoch) const {
  const std::int64_t samples = carried_over(epoch) + length_;
  return last_batch_ == LastBatch::keep ? 0 : samples % batch_size_;
}

std::int64_t SplitBatchSampler::samples_before(std::int64_t epoch, std::int64_t step) const {
  return std::min(step * batch_size_, carried_over(epoch) + length_);
}

// The concatenated orders of all epochs form one stream: stream position p is position p mod N of epoch p div N. A
// batch is a range of the stream, and a part's samples are a subrange.
IndexRange SplitBatchSampler::batch(std::int64_t epoch, std::int64_t step) const {
  if (step < 0 || step >= steps(epoch)) {
    throw Error(ErrorSource::internal,
                fmt::format("step {} of epoch {}, which has {} steps", step, epoch, steps(epoch)));
  }
  const std::int64_t begin = epoch * length_ - carried_over(epoch) + step * batch_size_;
  return {begin, std::min(begin + batch_size_, (epoch + 1) * length_)};
}

// The number of the first `positions` positions of an epoch's order that belong to parts below `part`.
std::int64_t SplitBatchSampler::samples_of_lower_parts(int part, std::int64_t epoch, std::int64_t positions) const {
  const auto positions_below = [&](std::int64_t n) { return part_positions(n, num_parts_, part).begin; };
  const std::int64_t below = positions_below(batch_size_);
  const auto from_whole_batches = [&](std::int64_t position) {
    return position / batch_size_ * below + std::min(position % batch_size_, below);
  };
  if (last_batch_ == LastBatch::rollover) {
    return from_whole_batches(epoch * length_ + positions) - from_whole_batches(epoch * length_);
  }
  const std::int64_t in_whole_batches = length_ - length_ % batch_size_;
  if (positions <= in_whole_batches) return from_whole_batches(positions);
  const std::int64_t short_batch = last_batch_ == LastBatch::keep ? length_ % batch_size_ : 0;
  return from_whole_batches(in_whole_batches) + std::min(positions - in_whole_batches, positions_below(short_batch));
}

std::vector<std::int64_t> SplitBatchSampler::indices(std::int64_t epoch, std::int64_t step) const {
  const IndexRange whole = batch(epoch, step);
  const std::int64_t first_epoch = whole.begin / length_;
  const std::int64_t last_epoch = (whole.end - 1) / length_;
  std::erase_if(*orders_,
                [&](const auto& entry) { return entry.first.first < first_epoch || entry.first.first > last_epoch; });

  const IndexRange own = part_positions(whole.size(), num_parts_, part_);
  const std::int64_t end = whole.begin + own.end;
  std::vector<std::int64_t> list;
  list.reserve(static_cast<std::size_t>(own.size()));
  for (std::int64_t begin = whole.begin + own.begin; begin < end;) {
    const std::int64_t drawn_in = begin / length_;
    const std::int64_t stop = std::min(end, (drawn_in + 1) * length_);
    append(list, {begin - drawn_in * length_, stop - drawn_in * length_}, drawn_in);
    begin = stop;
  }
  return list;
}

// Appends the samples at consecutive positions of one epoch's order, all of which belong to this part.
void SplitBatchSampler::append(std::vector<std::int64_t>& list, IndexRange positions, std::int64_t epoch) const {
  if (rule_.shuffle == Shuffle::none) {
    const auto old_size = list.size();
    list.resize(old_size + static_cast<std::size_t>(positions.size()));
    std::iota(list.begin() + static_cast<std::ptrdiff_t>(old_size), list.end(), positions.begin);
    return;
  }
  IndexRange block{0, length_};
  std::int64_t from = positions.begin;
  int key = 0;
  if (rule_.shuffle == Shuffle::partition) {
    block = {samples_of_lower_parts(part_, epoch, length_), samples_of_lower_parts(part_ + 1, epoch, length_)};
    from = samples_of_lower_parts(part_ + 1, epoch, positions.begin) -
           samples_of_lower_parts(part_, epoch, positions.begin);
    key = part_;
  }
  const Order& drawn = order(epoch, key, block);
  std::copy_n(drawn.begin() + from, positions.size(), std::back_inserter(list));
}

// The samples of a block, shuffled for the epoch.
const SplitBatchSampler::Order& SplitBatchSampler::order(std::int64_t epoch, int key, IndexRange block) const {
  const std::pair at(epoch, key);
  if (const auto known = orders_->find(at); known != orders_->end()) return known->second;
  Order samples(static_cast<std::size_t>(block.size()));
  std::iota(samples.begin(), samples.end(), block.begin);
  RandomSequence random(rule_.seed, {.item = static_cast<std::uint32_t>(key),
                                     .when = static_cast<std::uint32_t>(epoch),
                                     .purpose = random_purpose("shuffle")});
  if (rule_.shuffle == Shuffle::balanced) {
    draw_balanced(rule_.labels, random, samples);
  } else {
    shuffle(samples, random);
  }
  return orders_->emplace(at, std::move(samples)).first->second;
}

}  // namespace tutti
