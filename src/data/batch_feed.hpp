#pragma once
// One part's batches on their way to a network. Readers prepare each in a slot of the host's memory. A device with
// memory of its own receives it ahead of its turn through a stream that only copies. The batch then moves to an address
// that never changes, in the order of the stream that computes, so that a CUDA graph can hold that work. Where the
// device holds the data set itself, a slot carries tables (which samples, and how each is resampled) instead of pixels.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/image_store.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/data/dataset.hpp"

#include "augmentation.hpp"
#include "image_writer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

// The recipe with the data's own image shape where it names none.
ImageRecipe completed(ImageRecipe recipe, const DatasetInfo& data);

// Where the tensors of a batch lie in one block of memory, so that one copy carries them: images and labels, or the
// tables from which a device makes these.
class BatchLayout {
 public:
  // For images and labels of the recipe's shape.
  explicit BatchLayout(const Shape& image) : image_(image) {}
  // For tables; `image` is the shape of the data's images.
  BatchLayout(const ImageRecipe& recipe, const Shape& image);

  std::size_t bytes(std::int64_t samples) const;
  ImageGather view(const Buffer& memory, std::int64_t samples) const;

 private:
  struct Axis {
    std::int64_t outputs = 0;
    std::int64_t most_taps = 1;
  };
  std::size_t lay_out(std::int64_t samples, const Buffer* memory, ImageGather& batch) const;

  Shape image_;
  std::optional<Axis> rows_;  // of tables, as the next
  Axis columns_;
};

// Rows first_row .. of a batch.
struct BatchRows {
  std::span<const std::int64_t> samples;
  std::int64_t epoch = 0;
  std::int64_t first_row = 0;
};

// Writes samples into the host's memory as rows of a batch. One writer serves one thread at a time.
class BatchWriter {
 public:
  // `data` is borrowed; the recipe is complete.
  BatchWriter(const Dataset& data, const ImageRecipe& recipe) : data_(data), recipe_(recipe), images_(recipe) {}

  // Writes images and labels, or the tables where `batch` has them.
  void write(const BatchRows& rows, const ImageGather& batch);

 private:
  void write_pixels(const BatchRows& rows, const ImageGather& batch);
  void write_tables(std::int64_t row, const SampleKey& key, const ImageGather& batch);

  const Dataset& data_;
  ImageRecipe recipe_;
  ImageWriter images_;
  SampleBatch samples_;
  AxisWeights rows_;
  AxisWeights columns_;
};

// What the feeds of all parts share: the data set, if the device holds it, and the stream that copies.
struct BatchRoute {
  // `backend` is borrowed; the recipe is complete. Copies the data set to the device if that has room for it.
  BatchRoute(const Dataset& data, Backend& backend, const ImageRecipe& recipe);

  Backend& backend;
  BatchLayout pixels;                 // what is delivered
  BatchLayout sent;                   // what the readers write
  std::unique_ptr<Stream> copies;     // null on the host's own processor
  std::unique_ptr<ImageStore> store;  // null where the device does not hold the data set
  Buffer means;                       // f32 C on the device, where it holds the data set; so are the deviations
  Buffer deviations;
};

class BatchFeed {
 public:
  // For batches of at most `most_samples`. Borrows the route.
  BatchFeed(const BatchRoute& route, std::int64_t most_samples, std::size_t slots);

  // Writes some rows of a batch of `samples`. Several threads may write different rows of one slot.
  void write(BatchWriter& writer, const BatchRows& rows, std::size_t slot, std::int64_t samples) {
    writer.write(rows, route_.sent.view(slots_[slot].memory, samples));
  }
  // All rows of a slot that was written, as part 0 at position 0, for what `stream` does from now on. The stream must
  // be the same at every call. Asynchronous.
  Batch deliver(Stream& stream, std::size_t slot, std::int64_t samples);
  // Returns when the slot last delivered may be written again; waits as `stream` does.
  void await_sent(Stream& stream, std::size_t slot) {
    if (route_.copies) stream.await(*slots_[slot].sent);
  }

 private:
  struct Slot {
    Buffer memory;
    std::unique_ptr<Event> sent;
  };
  const BatchRoute& route_;
  std::vector<Slot> slots_;
  // On a device: where copies arrive, when that may be overwritten, and where every batch is delivered.
  Buffer landing_;
  std::unique_ptr<Event> landing_free_;
  Buffer delivered_;
};

}  // namespace tutti
