#pragma once
// The next batch of each of this rank's parts, on the device and on time: reader threads prepare the steps ahead, at
// a lower priority than the threads that compute. The host's memory for it is bounded by (steps ahead + 1) batches of
// this rank's parts, when they were most; a device of its own has two, or the whole data set where that fits.

#include "tutti/backend/backend.hpp"
#include "tutti/data/dataset.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/data/split_batch_sampler.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tutti {

struct LoaderPlan {
  std::int64_t batch_size = 0;  // global
  int num_parts = 1;
  IndexRange parts;  // this rank's, until assign() gives others
  LastBatch last_batch = LastBatch::keep;
  OrderRule order;
  int steps_ahead = 1;  // prepared in the background; 0 prepares each step when it is asked for
  int readers = 1;      // threads that prepare them; what they deliver does not depend on their number
  ImageRecipe recipe;
  std::function<void()> after_piece = [] {};  // called in any thread when a piece of a batch has been prepared
};

// One part's samples of one step. Borrowed: valid until next() is called again, and on a device for the work that is in
// the stream by then. There, each part's tensors have the same addresses at every step.
struct Batch {
  int part = 0;
  std::int64_t samples = 0;         // possibly 0
  std::int64_t first_position = 0;  // of its first sample in the global batch
  Tensor images;                    // f32 N, C, H, W, as the recipe says
  Tensor labels;                    // i32 N
};

struct StepBatches {
  std::int64_t epoch = 0;
  std::int64_t step = 0;            // within the epoch
  std::int64_t global_samples = 0;  // of all parts of all ranks
  std::vector<Batch> batches;       // one per part of this rank, in order
};

class BatchLoader {
 public:
  // `data` and `backend` are borrowed.
  BatchLoader(const Dataset& data, Backend& backend, const LoaderPlan& plan);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // Steps and positions of the epochs. Its part is any one.
  const SplitBatchSampler& schedule() const;
  // Every number of samples except 0 that a part of any rank can have in any step of any epoch, ascending.
  std::vector<std::int64_t> slice_sizes() const;

  // Makes next() continue at this step. A step beyond the epoch's last is the next epoch's first.
  void seek(std::int64_t epoch, std::int64_t step);
  // Assigns other parts to this rank from the next step on. What was prepared for the old ones is dropped.
  void assign(IndexRange parts);
  // The next step's batches, for what `stream` does from now on: the same at every call. Epochs follow one another
  // without end. Throws what reading the data threw.
  const StepBatches& next(Stream& stream);

 private:
  class Pipeline;
  std::unique_ptr<Pipeline> pipeline_;
};

// For evaluation: the images and labels of samples first .. first + count - 1 as one batch on the device.
class ChunkReader {
 public:
  // `data` and `backend` are borrowed. Of the recipe, the image size and the normalisation count.
  ChunkReader(const Dataset& data, Backend& backend, const ImageRecipe& recipe, std::int64_t most_samples);
  ~ChunkReader();
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  // For what `stream` does from now on, the same at every call; valid until the next. Throws what reading the data
  // threw.
  Batch read(Stream& stream, std::int64_t first, std::int64_t count);

 private:
  class Desk;
  std::unique_ptr<Desk> desk_;
};

}  // namespace tutti
