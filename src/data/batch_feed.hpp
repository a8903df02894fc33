#pragma once
// Transfers one part's batches to the device. Readers prepare each batch in a slot of host memory. For a GPU, a copy
// stream then prefetches it into device staging memory. In the order of the compute stream it is copied from there to a
// fixed address, so that CUDA graphs can use it. If the GPU stores the data set itself, a slot contains tables (sample
// numbers, and the weights to resample each image) instead of pixels.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/image_store.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/data/dataset.hpp"

#include "image_geometry.hpp"
#include "pixel_writer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

// The recipe, with the data's image shape if it has none.
ImageRecipe with_image_shape(ImageRecipe recipe, const DatasetInfo& data);

// Without augmentation and normalization.
inline ImageRecipe plain(const ImageRecipe& recipe) {
  return {.augment = {}, .image = recipe.image, .statistics = {}, .keeps_short_side = recipe.keeps_short_side};
}

// The layout of a batch's tensors in one block of memory, so that one copy transfers them: images and labels, or the
// tables from which a GPU computes them.
class BatchLayout {
 public:
  // For images of the recipe's shape, and their labels.
  explicit BatchLayout(const ImageRecipe& recipe) : image_(recipe.image), mixes_(recipe.augment.mixes()) {}
  // For tables; `image` is the shape of the data's images.
  BatchLayout(const ImageRecipe& recipe, const Shape& image);

  std::size_t bytes(std::int64_t samples) const;
  ImageGather view(const Buffer& memory, std::int64_t samples) const;

 private:
  struct Axis {
    std::int64_t outputs = 0;
    std::int64_t most_taps = 1;
  };
  std::size_t place_tensors(std::int64_t samples, const Buffer* memory, ImageGather& batch) const;

  Shape image_;
  bool mixes_ = false;
  std::optional<Axis> rows_;  // for tables only, as columns_
  Axis columns_;
};

// Rows of a batch, from first_row on.
struct BatchRows {
  std::span<const std::int64_t> samples;
  std::int64_t epoch = 0;
  std::int64_t step = 0;                     // within the epoch
  std::int64_t first_row = 0;                // even
  std::optional<std::int64_t> first_item{};  // SampleKey::item of the first, where samples may repeat
  ChunkView view{};
};

// Writes samples into host memory as rows of a batch. Not thread-safe.
class BatchWriter {
 public:
  // `data` is borrowed; the recipe must have an image shape.
  BatchWriter(const Dataset& data, const ImageRecipe& recipe)
      : data_(data), recipe_(recipe), images_(recipe), whole_(plain(recipe)), scaled_(whole_) {}

  // Writes images and labels, or the tables if `batch` has them.
  void write(const BatchRows& rows, const ImageGather& batch);

 private:
  void write_pixels(const BatchRows& rows, const ImageGather& batch);
  // Decodes what the sample's crop needs.
  void write_encoded(std::int64_t sample, const SampleKey& key, const ChunkView& view, std::span<float> values);
  ImagePlan plan(const Shape& image, const SampleKey& key, const ChunkView& view) const;
  // Mixes each sample in an even row with the next.
  void mix(const BatchRows& rows, const ImageGather& batch);
  // Writes the planned pixels: those that augment() changes before they are normalized, or all that is to be done.
  PixelWriter& resampler() { return recipe_.augment.changes_bytes() ? scaled_ : images_; }
  void augment(const SampleKey& key, std::span<float> values);

  const Dataset& data_;
  ImageRecipe recipe_;
  PixelWriter images_;
  ImageRecipe whole_;   // for images that keep their pixels
  PixelWriter scaled_;  // writes pixel / 255
  std::vector<std::uint8_t> pixels_;
  SampleBatch samples_;
  std::vector<std::byte> file_;
  std::vector<std::uint8_t> decoded_;
  AxisWeights rows_;
  AxisWeights columns_;
};

// Shared by the feeds of all parts: the copy stream, and the data set if the GPU stores it.
struct TransferContext {
  // `backend` is borrowed; the recipe must have an image shape. Copies the data set to the GPU if it fits.
  TransferContext(const Dataset& data, Backend& backend, const ImageRecipe& recipe);

  Backend& backend;
  BatchLayout batch_layout;             // of delivered batches
  BatchLayout staged_layout;            // of slots and device staging memory
  std::unique_ptr<Stream> copy_stream;  // null on CPUs
  std::unique_ptr<ImageStore> store;    // null if the GPU does not store the data set
  Buffer means;                         // f32 C in GPU memory, only with a store
  Buffer deviations;                    // as means
};

class BatchFeed {
 public:
  // For batches of at most `most_samples`. Borrows the context.
  BatchFeed(const TransferContext& context, std::int64_t most_samples, std::size_t slots);

  // Writes some rows of a batch of `samples`. Several threads may write different rows of one slot.
  void write(BatchWriter& writer, const BatchRows& rows, std::size_t slot, std::int64_t samples) {
    writer.write(rows, context_.staged_layout.view(slots_[slot].memory, samples));
  }
  // Enqueues the copy of all rows of a slot to the device, ordered before the work enqueued in `stream` from now on.
  // Sets the images and labels of `batch`, which has this number of samples. The stream must be the same at every call.
  // Asynchronous.
  void enqueue_copy(Stream& stream, std::size_t slot, Batch& batch);
  // Waits until the slot may be written again. Waits by stream.await(), so that the stream's wait callback is called.
  void wait_until_copied(Stream& stream, std::size_t slot) {
    if (context_.copy_stream) stream.await(*slots_[slot].copied);
  }

 private:
  struct Slot {
    Buffer memory;
    std::unique_ptr<Event> copied;
  };
  const TransferContext& context_;
  std::vector<Slot> slots_;
  // On a GPU only.
  Buffer device_staging_;                       // the target of copies from slots
  std::unique_ptr<Event> device_staging_free_;  // recorded when it may be overwritten
  Buffer delivered_;                            // the fixed address of batches
};

}  // namespace tutti
