#pragma once
// One part's batches on their way to a network. Readers prepare each in a slot of the host's memory. On a processor
// with memory of its own it is sent from there ahead of its turn, by a stream that does nothing else, and then takes
// its place in the order of the stream that computes: a place that never changes, so that work on it can be recorded.
// Where the processor holds the data set itself, a slot holds tables instead of pixels.

#include "tutti/backend/backend.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/data/dataset.hpp"

#include "image_writer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti {

class BatchFeed {
 public:
  virtual ~BatchFeed() = default;
  // Some rows of a batch of `samples`. In any thread; several may write different rows of one slot.
  struct Preparation {
    std::size_t slot = 0;
    std::int64_t samples = 0;
    BatchRows rows;
  };
  virtual void write(BatchWriter& writer, const Preparation& preparation) = 0;
  // All rows of a slot that was written, of part 0 and position 0, for what `stream` does from now on; it does what
  // reads earlier batches before, and all that ever is delivered here. Asynchronous.
  virtual Batch deliver(Stream& stream, std::size_t slot, std::int64_t samples) = 0;
  // Returns when the slot last delivered may be written again; with the patience of `stream`.
  virtual void await_sent(Stream& stream, std::size_t slot) = 0;
};

// What the feeds of all parts share: the data set, if the processor holds it, and the stream that sends.
class BatchRoute {
 public:
  // `backend` is borrowed; the recipe is complete. Copies the data set to the processor if that has room for it.
  BatchRoute(const Dataset& data, Backend& backend, const ImageRecipe& recipe);
  ~BatchRoute();
  BatchRoute(const BatchRoute&) = delete;
  BatchRoute& operator=(const BatchRoute&) = delete;

  // For batches of up to so many samples. Borrows this.
  std::unique_ptr<BatchFeed> make_feed(std::int64_t most_samples, std::size_t slots);

 private:
  class HeldSet;
  class HostFeed;
  class DeviceFeed;
  class PixelFeed;
  class TableFeed;

  Backend& backend_;
  Shape image_;
  std::unique_ptr<Stream> copies_;  // null on the host's own processor
  std::unique_ptr<HeldSet> held_;   // null where the processor does not hold the data set
};

}  // namespace tutti
