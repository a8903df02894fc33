#include "tutti/data/batch_loader.hpp"

#include "tutti/base/error.hpp"

#include "support/late_device.hpp"
#include "support/thrown.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace tutti {
namespace {

using testing_support::LateDevice;
using testing_support::MemoryBackend;

std::unique_ptr<MemoryBackend> backend_in(MemorySpace space) {
  if (space == MemorySpace::host) return std::make_unique<MemoryBackend>();
  return std::make_unique<LateDevice>(1);
}

// A loader and its stream.
class Loading : public BatchLoader {
 public:
  Loading(const Dataset& data, Backend& backend, const LoaderPlan& plan)
      : BatchLoader(data, backend, plan), stream_(backend.make_stream()) {}
  // Returns when the batches have arrived.
  const StepBatches& next() {
    const StepBatches& step = BatchLoader::next(*stream_);
    stream_->synchronize();
    return step;
  }

 private:
  std::unique_ptr<Stream> stream_;
};

// Sample i has the pixels i and i + 1 and the label i mod 7. Counts reads, and can fail from a given sample on.
class CountingDataset : public Dataset {
 public:
  explicit CountingDataset(std::int64_t samples, const Shape& shape = kShape) {
    info_.name = "counting";
    info_.image = shape;
    info_.classes = 7;
    info_.samples = samples;
  }

  static inline const Shape kShape{1, 1, 2};

  std::atomic<std::int64_t> first_failing{1'000'000};
  std::size_t most_at_once() const { return most_at_once_; }
  std::int64_t samples_read() const { return samples_read_; }

  const DatasetInfo& info() const override { return info_; }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    batch.images.clear();
    batch.labels.clear();
    batch.buffers.resize(samples.size());
    most_at_once_ = std::max(most_at_once_.load(), samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (samples[i] >= first_failing) throw Error(ErrorSource::io, "sample " + std::to_string(samples[i]));
      batch.buffers[i] = {static_cast<std::uint8_t>(samples[i]), static_cast<std::uint8_t>(samples[i] + 1)};
      batch.images.push_back({batch.buffers[i].data(), kShape});
      batch.labels.push_back(static_cast<std::int32_t>(samples[i] % 7));
      ++samples_read_;
    }
  }
  std::size_t resident_bytes() const override { return 0; }
  std::uint64_t digest() const override { return 0; }

 private:
  DatasetInfo info_;
  mutable std::atomic<std::int64_t> samples_read_{0};
  mutable std::atomic<std::size_t> most_at_once_{0};
};

LoaderPlan plan_of(std::int64_t batch_size, int parts, LastBatch last_batch = LastBatch::keep) {
  LoaderPlan plan;
  plan.batch_size = batch_size;
  plan.num_parts = parts;
  plan.parts = {0, parts};
  plan.last_batch = last_batch;
  plan.order = {Shuffle::global, 5};
  return plan;
}

void expect_samples(const Batch& batch, const std::vector<std::int64_t>& samples, MemorySpace space) {
  ASSERT_EQ(batch.samples, static_cast<std::int64_t>(samples.size()));
  ASSERT_EQ(batch.images.shape, (Shape{batch.samples, 1, 1, 2}));
  ASSERT_EQ(batch.labels.shape, Shape{batch.samples});
  ASSERT_EQ(batch.images.space, space);
  const auto* pixels = static_cast<const float*>(batch.images.data);
  const auto* labels = static_cast<const std::int32_t*>(batch.labels.data);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto first = static_cast<std::uint8_t>(samples[i]);
    ASSERT_EQ(pixels[2 * i], static_cast<float>(first) / 255.0f);
    ASSERT_EQ(pixels[2 * i + 1], static_cast<float>(static_cast<std::uint8_t>(first + 1)) / 255.0f);
    ASSERT_EQ(labels[i], samples[i] % 7);
  }
}

void expect_step(const StepBatches& step, const std::vector<SplitBatchSampler>& samplers, const LoaderPlan& plan,
                 MemorySpace space) {
  ASSERT_EQ(step.batches.size(), samplers.size());
  ASSERT_EQ(step.global_samples, samplers[0].batch_samples(step.epoch, step.step));
  for (std::size_t i = 0; i < samplers.size(); ++i) {
    ASSERT_EQ(step.batches[i].part, plan.parts.begin + static_cast<std::int64_t>(i));
    ASSERT_EQ(step.batches[i].first_position,
              part_positions(step.global_samples, plan.num_parts, step.batches[i].part).begin);
    expect_samples(step.batches[i], samplers[i].indices(step.epoch, step.step), space);
  }
}

std::vector<SplitBatchSampler> samplers_of(const Dataset& data, const LoaderPlan& plan) {
  return SplitBatchSampler::for_parts(data.info().samples, plan.batch_size, plan.num_parts, plan.parts, plan.last_batch,
                                      plan.order);
}

struct Preparation {
  int steps_ahead = 0;
  int readers = 1;
};
constexpr Preparation kPreparations[] = {{0, 1}, {1, 1}, {3, 1}, {1, 3}, {4, 2}};

TEST(BatchLoader, DeliversTheSamplersBatchesForAnyNumberOfStepsAheadAndReaders) {
  const CountingDataset data(253);
  for (const MemorySpace space : {MemorySpace::host, MemorySpace::cuda}) {
    for (const LastBatch last_batch : {LastBatch::keep, LastBatch::discard, LastBatch::rollover}) {
      for (const auto& [steps_ahead, readers] : kPreparations) {
        LoaderPlan plan = plan_of(150, 2, last_batch);
        plan.parts = {1, 2};
        plan.steps_ahead = steps_ahead;
        plan.readers = readers;
        std::atomic<int> pieces = 0;
        plan.after_piece = [&] { ++pieces; };
        const auto backend = backend_in(space);
        Loading loader(data, *backend, plan);
        const auto samplers = samplers_of(data, plan);
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
          for (std::int64_t step = 0; step < samplers[0].steps(epoch); ++step) {
            const StepBatches& next = loader.next();
            ASSERT_EQ(next.epoch, epoch);
            ASSERT_EQ(next.step, step);
            ASSERT_NO_FATAL_FAILURE(expect_step(next, samplers, plan, space));
          }
        }
        EXPECT_GE(pieces, 9);  // three of each of the steps that all orders have
      }
    }
  }
}

TEST(BatchLoader, CountsImagesAndProcessorTime) {
  const auto backend = backend_in(MemorySpace::host);
  const CountingDataset data(100);
  LoaderPlan plan = plan_of(20, 2);
  plan.steps_ahead = 0;
  Loading loader(data, *backend, plan);
  EXPECT_EQ(loader.prepared().images, 0);
  loader.next();
  loader.next();
  EXPECT_EQ(loader.prepared().images, 40);
  EXPECT_GT(loader.prepared().core_seconds, 0);
  loader.seek(3, 0);
  loader.next();
  EXPECT_EQ(loader.prepared().images, 60);
}

TEST(BatchLoader, ContinuesAtAnyPosition) {
  const CountingDataset data(40);
  for (const MemorySpace space : {MemorySpace::host, MemorySpace::cuda}) {
    for (const auto& [steps_ahead, readers] : kPreparations) {
      LoaderPlan plan = plan_of(8, 2);
      plan.steps_ahead = steps_ahead;
      plan.readers = readers;
      const auto backend = backend_in(space);
      Loading loader(data, *backend, plan);
      const auto samplers = samplers_of(data, plan);
      for (std::int64_t turn = 0; turn < 200; ++turn) {
        const std::int64_t epoch = turn * 7 % 11;
        loader.seek(epoch, turn % 5);
        for (std::int64_t more = 0; more <= turn % 3; ++more) {
          const StepBatches& next = loader.next();
          const std::int64_t position = epoch * 5 + turn % 5 + more;
          ASSERT_EQ(next.epoch * 5 + next.step, position);
          ASSERT_NO_FATAL_FAILURE(expect_step(next, samplers, plan, space));
        }
      }
    }
  }
}

TEST(BatchLoader, DeliversEachStepOnceWhenPartsAreReassigned) {
  const CountingDataset data(40);
  for (const MemorySpace space : {MemorySpace::host, MemorySpace::cuda}) {
    for (const auto& [steps_ahead, readers] : kPreparations) {
      LoaderPlan plan = plan_of(9, 7, LastBatch::rollover);
      plan.steps_ahead = steps_ahead;
      plan.readers = readers;
      const SplitBatchSampler sampler(40, 9, 7, 0, plan.last_batch, plan.order);
      // One rank with the parts before `cut`, one with the others.
      const auto share = [](int rank, std::int64_t cut) { return rank == 0 ? IndexRange{0, cut} : IndexRange{cut, 7}; };
      std::vector<std::unique_ptr<MemoryBackend>> backends;
      std::vector<std::unique_ptr<Loading>> loaders;
      for (int rank = 0; rank < 2; ++rank) {
        plan.parts = share(rank, 2);
        loaders.push_back(std::make_unique<Loading>(data, *backends.emplace_back(backend_in(space)), plan));
      }
      std::int64_t epoch = 0;
      std::int64_t step = 0;
      for (std::int64_t turn = 0; turn < 120; ++turn, ++step) {
        if (step == sampler.steps(epoch)) {
          ++epoch;
          step = 0;
        }
        const std::int64_t cut = turn < 5 ? 2 : 1 + turn / (1 + turn % 3) % 6;
        for (int rank = 0; rank < 2; ++rank) {
          plan.parts = share(rank, cut);
          if (turn >= 5) loaders[static_cast<std::size_t>(rank)]->assign(plan.parts);
          const StepBatches& next = loaders[static_cast<std::size_t>(rank)]->next();
          ASSERT_EQ(next.epoch, epoch);
          ASSERT_EQ(next.step, step);
          ASSERT_NO_FATAL_FAILURE(expect_step(next, samplers_of(data, plan), plan, space));
        }
      }
      EXPECT_THROW(loaders[0]->assign({6, 8}), Error);
      EXPECT_EQ(loaders[0]->next().global_samples, 9) << "continues as before";
    }
  }
}

TEST(BatchLoader, TreatsAStepAfterTheLastAsTheNextEpochsFirst) {
  const CountingDataset data(40);
  MemoryBackend backend;
  Loading loader(data, backend, plan_of(8, 2));
  loader.seek(3, 5);
  const StepBatches& next = loader.next();
  EXPECT_EQ(next.epoch, 4);
  EXPECT_EQ(next.step, 0);
  EXPECT_THROW(loader.seek(0, -1), Error);
  EXPECT_THROW(loader.seek(-1, 0), Error);
}

TEST(BatchLoader, SkipsEpochsWithoutSteps) {
  const CountingDataset data(3);
  MemoryBackend backend;
  Loading loader(data, backend, plan_of(8, 2, LastBatch::rollover));
  EXPECT_EQ(loader.sampler().steps(0), 0);
  EXPECT_EQ(loader.sampler().remainder(1), 6);
  EXPECT_EQ(loader.next().epoch, 2);
  EXPECT_EQ(loader.next().epoch, 5);
}

TEST(BatchLoader, RefusesToWaitForBatchesThatNeverCome) {
  MemoryBackend backend;
  const CountingDataset few(5);
  const CountingDataset none(0);
  for (const int steps_ahead : {0, 1}) {
    LoaderPlan plan = plan_of(8, 2, LastBatch::discard);
    plan.steps_ahead = steps_ahead;
    Loading discarding(few, backend, plan);
    EXPECT_TRUE(discarding.part_batch_sizes().empty());
    const Error error = thrown_by([&] { discarding.next(); });
    EXPECT_EQ(error.source(), ErrorSource::usage);
    EXPECT_TRUE(std::string(error.what()).starts_with("5 samples do not fill a batch of 8")) << error.what();
    plan.last_batch = LastBatch::keep;
    Loading empty(none, backend, plan);
    EXPECT_THROW(empty.next(), Error);
  }
}

TEST(BatchLoader, RethrowsTheFirstReadErrorAndContinuesAfterASeek) {
  for (const auto& [steps_ahead, readers] : kPreparations) {
    CountingDataset data(400);
    LoaderPlan plan = plan_of(100, 2);
    plan.order.shuffle = Shuffle::none;
    plan.steps_ahead = steps_ahead;
    plan.readers = readers;
    data.first_failing = 210;
    MemoryBackend backend;
    Loading loader(data, backend, plan);
    EXPECT_EQ(loader.next().step, 0);
    EXPECT_EQ(loader.next().step, 1);
    for (int attempt = 0; attempt < 2; ++attempt) {
      EXPECT_STREQ(thrown_by([&] { loader.next(); }).what(), "sample 210") << readers << " readers";
    }
    data.first_failing = 1'000'000;
    loader.seek(0, 2);
    EXPECT_EQ(loader.next().step, 2);
  }
}

TEST(BatchLoader, ReadsAndAllocatesOnlyAsFarAheadAsPlanned) {
  for (const auto& [steps_ahead, readers] : kPreparations) {
    const CountingDataset data(1000);
    LoaderPlan plan = plan_of(10, 5);
    plan.steps_ahead = steps_ahead;
    plan.readers = readers;
    MemoryBackend backend;
    Loading loader(data, backend, plan);
    for (std::int64_t step = 1; step <= 90; ++step) {
      loader.next();
      ASSERT_LE(data.samples_read(), (step + steps_ahead) * 10);
    }
    EXPECT_EQ(backend.allocations(), (steps_ahead + 1) * 5);
  }
}

TEST(BatchLoader, CanBeDestroyedAtAnyTime) {
  const CountingDataset data(1000);
  LateDevice backend(1);
  for (int taken = 0; taken < 60; ++taken) {
    LoaderPlan plan = plan_of(10, 5);
    plan.steps_ahead = 1 + taken % 4;
    plan.readers = 1 + taken % 3;
    Loading loader(data, backend, plan);
    for (int i = 0; i < taken % 6; ++i) loader.next();
  }
}

TEST(BatchLoader, KnowsEveryPartBatchSizeInAdvance) {
  MemoryBackend backend;
  for (const LastBatch last_batch : {LastBatch::keep, LastBatch::discard, LastBatch::rollover}) {
    for (std::int64_t length = 0; length < 30; ++length) {
      for (std::int64_t batch_size = 1; batch_size < 12; ++batch_size) {
        LoaderPlan plan = plan_of(batch_size, 4, last_batch);
        plan.steps_ahead = 0;
        const CountingDataset data(length);
        std::set<std::int64_t> seen;
        for (const auto& sampler : samplers_of(data, plan)) {
          for (std::int64_t epoch = 0; epoch < 12; ++epoch) {
            for (std::int64_t step = 0; step < sampler.steps(epoch); ++step) {
              seen.insert(static_cast<std::int64_t>(sampler.indices(epoch, step).size()));
            }
          }
        }
        seen.erase(0);
        plan.parts = {1, 3};  // others may be assigned later
        const BatchLoader loader(data, backend, plan);
        ASSERT_EQ(loader.part_batch_sizes(), std::vector<std::int64_t>(seen.begin(), seen.end()));
      }
    }
  }
}

TEST(BatchLoader, RefusesInvalidPlans) {
  const CountingDataset data(10);
  MemoryBackend backend;
  LoaderPlan plan = plan_of(4, 2);
  plan.steps_ahead = -1;
  EXPECT_THROW(BatchLoader(data, backend, plan), Error);
  plan = plan_of(4, 2);
  plan.readers = 0;
  EXPECT_THROW(BatchLoader(data, backend, plan), Error);
  plan = plan_of(4, 2);
  plan.parts = {1, 3};
  EXPECT_THROW(BatchLoader(data, backend, plan), Error);
  EXPECT_THROW(BatchLoader(data, backend, plan_of(0, 2)), Error);
}

TEST(ChunkReader, ReadsConsecutiveSamplesIntoTheDevicesMemory) {
  const CountingDataset data(20);
  for (const MemorySpace space : {MemorySpace::host, MemorySpace::cuda}) {
    const auto backend = backend_in(space);
    const auto stream = backend->make_stream();
    ChunkReader reader(data, *backend, {}, 8);
    const int allocations = backend->allocations();
    const auto expect_chunk = [&](std::int64_t first, const std::vector<std::int64_t>& samples) {
      const Batch batch = reader.read(*stream, first, std::ssize(samples));
      stream->synchronize();
      expect_samples(batch, samples, space);
    };
    expect_chunk(3, {3, 4, 5, 6, 7, 8, 9, 10});
    expect_chunk(18, {18, 19});
    expect_chunk(20, {});
    EXPECT_THROW(reader.read(*stream, 0, 9), Error);
    EXPECT_EQ(backend->allocations(), allocations);
    EXPECT_EQ(data.most_at_once(), 8u);
  }
}

TEST(ChunkReader, ReadsOneImageAtATimeWhereTheirSizesDiffer) {
  const CountingDataset data(20, {1, 0, 0});
  MemoryBackend backend;
  const auto stream = backend.make_stream();
  ImageRecipe recipe;
  recipe.image = CountingDataset::kShape;
  ChunkReader reader(data, backend, recipe, 8);
  expect_samples(reader.read(*stream, 3, 8), {3, 4, 5, 6, 7, 8, 9, 10}, MemorySpace::host);
  EXPECT_EQ(data.most_at_once(), 1u);
}

}  // namespace
}  // namespace tutti
