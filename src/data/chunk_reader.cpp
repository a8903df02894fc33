#include "tutti/base/error.hpp"
#include "tutti/data/batch_loader.hpp"

#include "batch_feed.hpp"
#include "image_writer.hpp"

#include <fmt/format.h>

#include <numeric>

namespace tutti {
namespace {

ImageRecipe without_augmentation(ImageRecipe recipe) {
  recipe.augment = Augment::none;
  return recipe;
}

}  // namespace

class ChunkReader::Desk {
 public:
  Desk(const Dataset& data, Backend& backend, const ImageRecipe& recipe, std::int64_t most_samples)
      : most_samples_(most_samples),
        writer_(data, recipe),
        route_(data, backend, recipe),
        feed_(route_.make_feed(most_samples, 1)) {}

  Batch read(Stream& stream, std::int64_t first, std::int64_t count) {
    if (count < 0 || count > most_samples_) {
      throw Error(ErrorSource::internal,
                  fmt::format("a chunk of {} samples from a reader made for {}", count, most_samples_));
    }
    samples_.resize(static_cast<std::size_t>(count));
    std::iota(samples_.begin(), samples_.end(), first);
    feed_->await_sent(stream, 0);
    feed_->write(writer_, {.slot = 0, .samples = count, .rows = {.samples = samples_}});
    return feed_->deliver(stream, 0, count);
  }

 private:
  std::int64_t most_samples_;
  BatchWriter writer_;
  BatchRoute route_;
  std::unique_ptr<BatchFeed> feed_;
  std::vector<std::int64_t> samples_;
};

ChunkReader::ChunkReader(const Dataset& data, Backend& backend, const ImageRecipe& recipe, std::int64_t most_samples)
    : desk_(std::make_unique<Desk>(data, backend, completed(without_augmentation(recipe), data.info()), most_samples)) {
}

ChunkReader::~ChunkReader() = default;

Batch ChunkReader::read(Stream& stream, std::int64_t first, std::int64_t count) {
  return desk_->read(stream, first, count);
}

}  // namespace tutti
