// Compares the sampler with a model that shares none of its arithmetic: the model draws samples one at a time, carries
// leftovers in a queue, and counts each part's samples by visiting every position.

#include "tutti/base/random.hpp"
#include "tutti/data/split_batch_sampler.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr std::int64_t kEpochs = 4;

using Samples = std::vector<std::int64_t>;
using Shares = std::vector<Samples>;         // by part
using EpochShares = std::vector<Shares>;     // by step
using RunShares = std::vector<EpochShares>;  // by epoch

struct Case {
  std::int64_t length = 0;
  std::int64_t batch_size = 1;
  int parts = 1;
  LastBatch last_batch = LastBatch::keep;
  ShuffleOptions rule;

  std::string text() const {
    return fmt::format("length {}, batch {}, parts {}, {}, {}, seed {}", length, batch_size, parts, name_of(last_batch),
                       name_of(rule.shuffle), rule.seed);
  }
};

struct Place {
  std::size_t order_number = 0;
  std::size_t offset = 0;
};
using PlacedBatch = std::vector<Place>;

// Which positions of which orders form the batches of each epoch.
std::vector<std::vector<PlacedBatch>> model_batches(const Case& drawn, std::int64_t epochs) {
  const auto full = static_cast<std::size_t>(drawn.batch_size);
  std::vector<std::vector<PlacedBatch>> all;
  PlacedBatch open;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    auto& batches = all.emplace_back();
    for (std::int64_t offset = 0; offset < drawn.length; ++offset) {
      open.push_back({static_cast<std::size_t>(epoch), static_cast<std::size_t>(offset)});
      if (open.size() == full) {
        batches.push_back(open);
        open.clear();
      }
    }
    if (drawn.last_batch == LastBatch::rollover) continue;
    if (drawn.last_batch == LastBatch::keep && !open.empty()) batches.push_back(open);
    open.clear();
  }
  return all;
}

std::size_t part_of(std::size_t position, std::size_t n, std::size_t parts) {
  std::size_t part = 0;
  while ((part + 1) * n / parts <= position) ++part;
  return part;
}

Samples shuffled(std::int64_t begin, std::int64_t end, std::uint64_t seed, const RandomCounter& counter) {
  Samples samples(static_cast<std::size_t>(end - begin));
  std::iota(samples.begin(), samples.end(), begin);
  RandomSequence random(seed, counter);
  shuffle(samples, random);
  return samples;
}

// The samples at the positions of an order that belong to parts, by offset.
Samples model_order(const Case& drawn, std::uint32_t order_number, const std::vector<int>& part_at) {
  const std::uint32_t purpose = random_purpose("shuffle");
  Samples order(static_cast<std::size_t>(drawn.length));
  std::iota(order.begin(), order.end(), 0);
  if (drawn.rule.shuffle == Shuffle::none) return order;
  if (drawn.rule.shuffle == Shuffle::global) {
    return shuffled(0, drawn.length, drawn.rule.seed, {.when = order_number, .purpose = purpose});
  }
  std::int64_t block_begin = 0;
  for (int part = 0; part < drawn.parts; ++part) {
    const std::int64_t taken = std::count(part_at.begin(), part_at.end(), part);
    const Samples block =
        shuffled(block_begin, block_begin + taken, drawn.rule.seed,
                 {.item = static_cast<std::uint32_t>(part), .when = order_number, .purpose = purpose});
    auto next = block.begin();
    for (std::size_t offset = 0; offset < part_at.size(); ++offset) {
      if (part_at[offset] == part) order[offset] = *next++;
    }
    block_begin += taken;
  }
  return order;
}

RunShares model_shares(const Case& drawn) {
  // Enough additional epochs for every position of the compared orders to be in a batch.
  const std::int64_t more = drawn.length == 0 ? 0 : drawn.batch_size / drawn.length + 1;
  const auto batches = model_batches(drawn, kEpochs + more);
  std::vector<std::vector<int>> part_at(batches.size(), std::vector<int>(static_cast<std::size_t>(drawn.length), -1));
  const auto parts = static_cast<std::size_t>(drawn.parts);
  for (const auto& epoch : batches) {
    for (const auto& batch : epoch) {
      for (std::size_t i = 0; i < batch.size(); ++i) {
        part_at[batch[i].order_number][batch[i].offset] = static_cast<int>(part_of(i, batch.size(), parts));
      }
    }
  }
  Shares orders;
  for (std::uint32_t order_number = 0; order_number < kEpochs; ++order_number)
    orders.push_back(model_order(drawn, order_number, part_at[order_number]));

  RunShares run;
  for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
    auto& steps = run.emplace_back();
    for (const auto& batch : batches[epoch]) {
      auto& shares = steps.emplace_back(parts);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        shares[part_of(i, batch.size(), parts)].push_back(orders[batch[i].order_number][batch[i].offset]);
      }
    }
  }
  return run;
}

std::string difference_from_model(const Case& drawn, const std::vector<SplitBatchSampler>& samplers,
                                  const RunShares& model) {
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const EpochShares& steps = model[static_cast<std::size_t>(epoch)];
    for (std::size_t part = 0; part < samplers.size(); ++part) {
      if (samplers[part].steps(epoch) != static_cast<std::int64_t>(steps.size())) {
        return fmt::format("epoch {} has {} steps, the model {}", epoch, samplers[part].steps(epoch), steps.size());
      }
    }
    for (std::size_t step = 0; step < steps.size(); ++step) {
      std::int64_t batch_samples = 0;
      for (std::size_t part = 0; part < samplers.size(); ++part) {
        const Samples share = samplers[part].indices(epoch, static_cast<std::int64_t>(step));
        if (share != steps[step][part]) return fmt::format("epoch {} step {} part {}", epoch, step, part);
        batch_samples += static_cast<std::int64_t>(share.size());
      }
      if (samplers[0].batch_samples(epoch, static_cast<std::int64_t>(step)) != batch_samples) return "batch_samples";
      if (drawn.last_batch != LastBatch::keep && batch_samples != drawn.batch_size) return "a batch is not whole";
    }
  }
  return "";
}

// Checks the mode's guarantees about the use of samples, from the shares only.
std::string broken_promise(const Case& drawn, const std::vector<SplitBatchSampler>& samplers) {
  std::vector<int> uses_in_run(static_cast<std::size_t>(drawn.length));
  std::int64_t seen_in_run = 0;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::vector<int> uses(static_cast<std::size_t>(drawn.length));
    for (std::int64_t step = 0; step < samplers[0].steps(epoch); ++step) {
      for (const auto& sampler : samplers) {
        for (const std::int64_t sample : sampler.indices(epoch, step)) {
          if (sample < 0 || sample >= drawn.length) return "a sample out of range";
          ++uses[static_cast<std::size_t>(sample)];
          ++uses_in_run[static_cast<std::size_t>(sample)];
          ++seen_in_run;
        }
      }
    }
    const auto [least, most] = std::minmax_element(uses.begin(), uses.end());
    const std::int64_t used = std::accumulate(uses.begin(), uses.end(), std::int64_t{0});
    if (drawn.last_batch != LastBatch::rollover && used + samplers[0].remainder(epoch) != drawn.length) {
      return "steps and remainder do not add up to the data set";
    }
    if (drawn.length == 0) continue;
    if (drawn.last_batch == LastBatch::keep && (*least != 1 || *most != 1)) return "not exactly once per epoch";
    if (drawn.last_batch == LastBatch::discard && *most > 1) return "more than once in an epoch";
  }
  if (drawn.length == 0 || drawn.last_batch != LastBatch::rollover) return "";
  if (seen_in_run + samplers[0].remainder(kEpochs - 1) != kEpochs * drawn.length) return "samples got lost";
  const auto [least, most] = std::minmax_element(uses_in_run.begin(), uses_in_run.end());
  const std::int64_t whole_epochs = seen_in_run / drawn.length;
  if (*most > kEpochs || *least < whole_epochs) return "not once per order";
  return "";
}

std::string impurity(const Case& drawn, const RunShares& model, RandomSequence& random) {
  const std::uint32_t epoch = random.below(kEpochs);
  const EpochShares& steps = model[epoch];
  if (steps.empty()) return "";
  const std::uint32_t step = random.below(static_cast<std::uint32_t>(steps.size()));
  const std::uint32_t part = random.below(static_cast<std::uint32_t>(drawn.parts));
  const SplitBatchSampler fresh(drawn.length, drawn.batch_size, drawn.parts, static_cast<int>(part), drawn.last_batch,
                                drawn.rule);
  if (fresh.indices(epoch, step) == steps[step][part]) return "";
  return fmt::format("entered at epoch {} step {}, part {} gets another share", epoch, step, part);
}

Case draw_case(RandomSequence& random) {
  Case drawn;
  drawn.length = random.below(random.below(16) == 0 ? 150 : 26);
  drawn.batch_size = random.between(1, random.below(4) == 0 ? 60 : 12);
  drawn.parts = random.between(1, 7);
  drawn.last_batch = std::array{LastBatch::keep, LastBatch::discard, LastBatch::rollover}[random.below(3)];
  drawn.rule.shuffle = std::array{Shuffle::global, Shuffle::partition, Shuffle::none}[random.below(3)];
  drawn.rule.seed = random.next();
  return drawn;
}

TEST(SamplerModel, AgreesWithAModelThatDrawsSampleBySample) {
  constexpr int kCases = 100'000;
  RandomSequence random(20240229, {.purpose = random_purpose("sampler cases")});
  for (int i = 0; i < kCases; ++i) {
    const Case drawn = draw_case(random);
    const auto samplers = SplitBatchSampler::for_parts(drawn.length, drawn.batch_size, drawn.parts, {0, drawn.parts},
                                                       drawn.last_batch, drawn.rule);
    const RunShares model = model_shares(drawn);
    ASSERT_EQ(difference_from_model(drawn, samplers, model), "") << drawn.text();
    ASSERT_EQ(broken_promise(drawn, samplers), "") << drawn.text();
    ASSERT_EQ(impurity(drawn, model, random), "") << drawn.text();
  }
}

}  // namespace
}  // namespace tutti
