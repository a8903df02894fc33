#pragma once
// Loads the next batch of each of this rank's parts onto the device. Reader threads prefetch batches at a lower
// priority than the compute threads. Host memory is bounded by (steps_ahead + 1) batches for the largest number of
// parts that the rank has had. A GPU holds two batches per part, or the whole data set if that fits.

#include "tutti/backend/backend.hpp"
#include "tutti/data/dataset.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/data/split_batch_sampler.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace tutti {

struct LoaderPlan {
  std::int64_t batch_size = 0;  // global
  int num_parts = 1;
  IndexRange parts;  // this rank's, until assign() changes them
  LastBatch last_batch = LastBatch::keep;
  ShuffleOptions order;
  int steps_ahead = 1;  // prefetched in the background; 0: each step is prepared in next()
  int readers = 1;      // reader threads; the batches do not depend on their number
  ImageRecipe recipe;
  std::vector<double> class_weights{};        // as LossOptions
  std::function<void()> after_piece = [] {};  // called in any thread when a piece of a batch is prepared

  // The item in random numbers of the sample at this position of a step; empty: the sample itself.
  std::optional<std::int64_t> item_of(std::int64_t step, std::int64_t position) const {
    return order.shuffle == Shuffle::balanced ? std::optional(step * batch_size + position) : std::nullopt;
  }
};

// One part's samples of one step. Borrowed: valid until next() is called again, and on a GPU for the work that is in
// the stream by then. On a GPU each part's tensors have the same addresses at every step.
struct Batch {
  int part = 0;
  std::int64_t samples = 0;         // possibly 0
  std::int64_t first_position = 0;  // of its first sample in the global batch
  Tensor images;                    // f32 N, C, H, W, transformed by the recipe
  Labels labels;
};

struct StepBatches {
  std::int64_t epoch = 0;
  std::int64_t step = 0;            // within the epoch
  std::int64_t global_samples = 0;  // of all parts of all ranks
  std::vector<Batch> batches;       // one per part of this rank, in order
  std::optional<double> weight{};   // the sum of the class weights of all labels, if there are class weights
  double own_weight = 0;            // that of this rank's parts

  // LossPass::gradient_scale. If all weights are 0, so are the gradients.
  float gradient_scale() const {
    const double all = weight.value_or(static_cast<double>(global_samples));
    return all > 0 ? 1.0f / static_cast<float>(all) : 0;
  }
};

// Reads the batch of any part of any step in the calling thread, for a rank that computes a part of another. As
// BatchLoader::next; valid until the next call.
using PartReader = std::function<const StepBatches&(Stream& stream, int part, std::int64_t epoch, std::int64_t step)>;

// What it took to prepare images, the processor time of all threads together.
struct PreparedImages {
  std::int64_t images = 0;
  double core_seconds = 0;
};

class BatchLoader {
 public:
  // `data` and `backend` are borrowed.
  BatchLoader(const Dataset& data, Backend& backend, const LoaderPlan& plan);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // The steps and positions of the epochs. The sampler's own part index is unused.
  const SplitBatchSampler& sampler() const;
  // Every batch size except 0 that a part of any rank can have in any step of any epoch, ascending.
  std::vector<std::int64_t> part_batch_sizes() const;

  // Makes next() continue at this step. A step after the epoch's last is the first of the next epoch.
  void seek(std::int64_t epoch, std::int64_t step);
  // Assigns other parts to this rank from the next step on. Prefetched batches of the old parts are dropped.
  void assign(IndexRange parts);
  // Returns the next step's batches, ordered before the work enqueued in `stream` from now on. The stream must be the
  // same at every call. Epochs follow each other indefinitely. Rethrows errors from reading the data.
  const StepBatches& next(Stream& stream);

  // Of all steps prepared so far.
  PreparedImages prepared() const;

  // It borrows this loader's copy of the data on a GPU.
  PartReader make_part_reader() const;

 private:
  class Prefetcher;
  std::unique_ptr<Prefetcher> prefetcher_;
};

// How an image is seen: moved by some pixels to the left and up, reflected at the edges, and then mirrored.
struct ChunkView {
  std::int64_t shift = 0;
  bool mirrored = false;
};

// For evaluation: reads the images and labels of samples first .. first + count - 1 as one batch on the device.
class ChunkReader {
 public:
  // `data` and `backend` are borrowed. Uses the recipe's image size and normalization, not its augmentation.
  ChunkReader(const Dataset& data, Backend& backend, const ImageRecipe& recipe, std::int64_t most_samples);
  ~ChunkReader();
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  // As BatchLoader::next; valid until the next call.
  Batch read(Stream& stream, std::int64_t first, std::int64_t count, const ChunkView& view = {});

 private:
  struct Pipeline;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace tutti
