#include "train/part_workers.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"

#include "backend/device_values.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"
#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using testing_support::same_bits;
using Sizes = std::vector<std::int64_t>;  // samples of each part

struct Computed {
  std::vector<float> gradients;
  std::vector<std::int64_t> ready;
  LossSums sums;
};

// A rank's parts of one step, with random images and labels.
class Table {
 public:
  explicit Table(const Sizes& sizes)
      : backend_(make_cpu_backend()),
        network_(small_resnet(), Shape{1, 8, 8}, kClasses),
        weights_block_(backend_->allocate(network_.layout().block_bytes())) {
    backend_->enter_compute_thread(1);
    stream_ = backend_->make_stream();
    const Tensor block = weights_block_.view(Shape{network_.layout().block_elements()}, ElementType::f32);
    initialize(network_, Initializer::kaiming, 1, *backend_, block);
    for (const std::int64_t samples : sizes) add_batch(samples);
    weights_ = std::make_unique<NetworkWeights>(network_, *backend_, block);
    weights_->refresh(*stream_);
  }

  PartWorkers workers_of(int workers, NormSums* norm_sums = nullptr) {
    return PartWorkers({.network = network_,
                        .weights = *weights_,
                        .backend = *backend_,
                        .stream = *stream_,
                        .workers = workers,
                        .rank_status = rank_status_,
                        .norm_sums = norm_sums});
  }

  // Computes twice, so that leftovers of a step would affect the next one.
  Computed compute(
      PartWorkers& pool, const PartWorkers::OnGradientsReady& also = [](std::int64_t) {}) {
    for (const Batch& batch : step_.batches) {
      if (batch.samples > 0) pool.plan(batch.samples, LayerMode::training);
    }
    Computed computed;
    computed.gradients.resize(static_cast<std::size_t>(elements()));
    GradientAccumulator total(*backend_,
                              {computed.gradients.data(), Shape{elements()}, ElementType::f32, MemorySpace::host});
    pool.collect_gradients(total, static_cast<std::int64_t>(step_.batches.size()));
    for (int again = 0; again < 2; ++again) {
      computed.ready.clear();
      pool.set_sums({});
      pool.compute({.batches = step_}, [&](std::int64_t final) {
        computed.ready.push_back(final);
        also(final);
      });
      computed.sums = pool.sums();
    }
    return computed;
  }

  Backend& backend() { return *backend_; }
  Stream& stream() { return *stream_; }
  const Network& network() const { return network_; }
  RankStatus& rank_status() { return rank_status_; }
  std::size_t layers() const { return network_.layers().size(); }
  std::int64_t elements() const { return network_.layout().block_elements(); }
  std::int32_t& first_label_of(std::size_t part) { return labels_[part][0]; }
  // The other parts are empty, but count in the global batch.
  void keep_only(std::size_t part) {
    for (std::size_t i = 0; i < step_.batches.size(); ++i) {
      if (i != part) step_.batches[i].samples = 0;
    }
  }

 private:
  static constexpr int kClasses = 3;

  void add_batch(std::int64_t samples) {
    RandomSequence random(1, {.item = static_cast<std::uint32_t>(step_.batches.size())});
    auto& images = images_.emplace_back(static_cast<std::size_t>(samples * 64));
    for (float& pixel : images) pixel = static_cast<float>(random.uniform());
    auto& labels = labels_.emplace_back(static_cast<std::size_t>(samples));
    for (std::int32_t& label : labels) label = static_cast<std::int32_t>(random.uniform() * kClasses);
    step_.batches.push_back({.part = static_cast<int>(step_.batches.size()),
                             .samples = samples,
                             .images = {images.data(), Shape{samples, 1, 8, 8}, ElementType::f32, MemorySpace::host},
                             .labels = {labels.data(), Shape{samples}, ElementType::i32, MemorySpace::host}});
    step_.global_samples += samples;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  Network network_;
  Buffer weights_block_;
  RankStatus rank_status_;
  std::unique_ptr<NetworkWeights> weights_;
  std::vector<std::vector<float>> images_;
  std::vector<std::vector<std::int32_t>> labels_;
  StepBatches step_;
};

TEST(PartWorkers, AddThePartsInTheirOrderWhicheverWorkerComputesThem) {
  for (const Sizes& sizes : std::vector<Sizes>{{5}, {4, 3}, {0, 4, 2}, {3, 0, 0, 6}, {1, 2, 3, 4, 5}, {2, 0}, {0, 0}}) {
    Table table(sizes);
    PartWorkers alone = table.workers_of(1);
    const Computed expected = table.compute(alone);
    for (const int workers : {2, 3}) {
      PartWorkers pool = table.workers_of(workers);
      const Computed computed = table.compute(pool);
      EXPECT_TRUE(same_bits(computed.gradients, expected.gradients)) << sizes.size() << " parts, " << workers;
      EXPECT_EQ(computed.sums, expected.sums);
    }
  }
}

TEST(PartWorkers, PublishProgressForEveryLayerOfEveryWorker) {
  Table table({2, 2, 2});
  PartWorkers pool = table.workers_of(2);
  StatusSlot slot;
  table.rank_status().publish_in(slot);
  const std::uint64_t before = slot.progress;
  table.compute(pool);
  const std::size_t forwards_and_backwards = 2 * 2 * 3 * table.layers();
  const std::size_t phases = 2 * 2 * 2;  // of the first worker
  EXPECT_EQ(slot.progress - before, forwards_and_backwards + phases);
}

TEST(PartWorkers, ComputeTheSumOfSequentialParts) {
  const Sizes sizes{3, 4, 2};
  Table table(sizes);
  PartWorkers pool = table.workers_of(2);
  const Computed together = table.compute(pool);
  EXPECT_EQ(together.sums.samples, 9);
  std::vector<float> sum;
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    Table single(sizes);
    single.keep_only(part);
    PartWorkers one = single.workers_of(1);
    const std::vector<float> own = single.compute(one).gradients;
    if (sum.empty()) {
      sum = own;
    } else {
      std::ranges::transform(sum, own, sum.begin(), std::plus<>());
    }
  }
  EXPECT_TRUE(same_bits(together.gradients, sum));
}

TEST(PartWorkers, ReportFinishedElementsInOrderAndAllAtTheEnd) {
  Table table({4, 4, 4});
  for (const int workers : {1, 2, 3}) {
    PartWorkers pool = table.workers_of(workers);
    const Computed computed = table.compute(pool);
    EXPECT_TRUE(std::ranges::is_sorted(computed.ready));
    EXPECT_EQ(computed.ready.back(), static_cast<std::int64_t>(computed.gradients.size()));
    // A single worker reports layer by layer while the last part is computed.
    const auto levels = std::set(computed.ready.begin(), computed.ready.end()).size();
    EXPECT_GT(levels, workers == 1 ? 3u : 0u);
  }
}

TEST(PartWorkers, ReportAllElementsAlsoWhenTheOtherPartsAreDoneEarlier) {
  Table table({1, 1});
  PartWorkers pool = table.workers_of(2);
  // The calling thread is slow, so that the other part is added while its own backward pass is still running.
  const Computed computed =
      table.compute(pool, [](std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  EXPECT_EQ(computed.ready.back(), table.elements());
}

TEST(PartWorkers, RethrowTheExceptionOfAWorkerAndStayUsable) {
  for (const std::size_t part : {0u, 1u, 4u}) {
    Table table({2, 3, 2, 2, 3});
    for (const int workers : {1, 2, 3}) {
      PartWorkers pool = table.workers_of(workers);
      const Computed expected = table.compute(pool);
      const std::int32_t right = std::exchange(table.first_label_of(part), 99);
      EXPECT_THAT(thrown_by([&] { table.compute(pool); }).what(), mentions("has the label 99"));
      table.first_label_of(part) = right;
      EXPECT_TRUE(same_bits(table.compute(pool).gradients, expected.gradients));
    }
  }
}

// The other parts wait for the failed one at a batch norm.
TEST(PartWorkers, RethrowTheExceptionOfAPartForWhichTheOthersWait) {
  for (const std::size_t part : {0u, 1u, 2u}) {
    Table table({2, 3, 2});
    const auto communicator = make_solo_communicator();
    const RankContext context(table.backend(), *communicator, table.rank_status(), table.stream());
    NormSums sums(table.network(), context, nullptr);
    PartWorkers pool = table.workers_of(3, &sums);
    const Computed expected = table.compute(pool);
    const std::int32_t right = std::exchange(table.first_label_of(part), 99);
    EXPECT_THAT(thrown_by([&] { table.compute(pool); }).what(), mentions("has the label 99"));
    table.first_label_of(part) = right;
    EXPECT_TRUE(same_bits(table.compute(pool).gradients, expected.gradients));
  }
}

TEST(PartWorkers, RethrowTheExceptionOfTheExchange) {
  Table table({2, 3, 2});
  PartWorkers pool = table.workers_of(3);
  const Computed expected = table.compute(pool);
  EXPECT_THROW(table.compute(pool, [](std::int64_t) { throw Error(ErrorSource::mpi, "the neighbor has exited"); }),
               Error);
  EXPECT_TRUE(same_bits(table.compute(pool).gradients, expected.gradients));
}

TEST(PartWorkers, StartAThreadForEveryWorkerExceptTheFirst) {
  Table table({1});
  PartWorkers pool = table.workers_of(3);
  std::vector<std::thread::id> threads(3);
  pool.each([&](Worker& worker) { threads[worker.index] = std::this_thread::get_id(); });
  EXPECT_EQ(threads[0], std::this_thread::get_id());
  EXPECT_EQ(std::set(threads.begin(), threads.end()).size(), 3u);
}

TEST(PartWorkers, AllocateOneMoreGradientBlockForEveryWorkerAfterTheFirst) {
  Table table({2, 2, 2});
  const auto blocks = [&](int workers, int parts) {
    PartWorkers pool = table.workers_of(workers);
    const std::size_t before = pool.memory_bytes();
    std::vector<float> total(static_cast<std::size_t>(table.elements()));
    GradientAccumulator sum(table.backend(),
                            {total.data(), Shape{table.elements()}, ElementType::f32, MemorySpace::host});
    pool.collect_gradients(sum, parts);
    return (pool.memory_bytes() - before) / (total.size() * sizeof(float));
  };
  EXPECT_EQ(blocks(1, 1), 0u);
  EXPECT_EQ(blocks(1, 3), 1u);
  EXPECT_EQ(blocks(3, 3), 2u);
  EXPECT_EQ(blocks(2, 5), 2u);
}

}  // namespace
}  // namespace tutti
