#include "tutti/base/error.hpp"
#include "tutti/data/batch_loader.hpp"

#include "batch_feed.hpp"

#include <fmt/format.h>

#include <numeric>

namespace tutti {

struct ChunkReader::Pipeline {
  Pipeline(const Dataset& data, Backend& backend, const ImageRecipe& recipe, std::int64_t most)
      : most_samples(most), writer(data, recipe), context(data, backend, recipe), feed(context, most, 1) {}

  std::int64_t most_samples;
  BatchWriter writer;
  TransferContext context;
  BatchFeed feed;
  std::vector<std::int64_t> samples{};
};

ChunkReader::ChunkReader(const Dataset& data, Backend& backend, const ImageRecipe& recipe, std::int64_t most_samples) {
  ImageRecipe fitting = with_image_shape(recipe, data.info());
  fitting.augment = {};
  pipeline_ = std::make_unique<Pipeline>(data, backend, fitting, most_samples);
}

ChunkReader::~ChunkReader() = default;

Batch ChunkReader::read(Stream& stream, std::int64_t first, std::int64_t count, const ChunkView& view) {
  auto& [most_samples, writer, context, feed, samples] = *pipeline_;
  if (count < 0 || count > most_samples) {
    throw Error(ErrorSource::internal,
                fmt::format("a chunk of {} samples from a reader made for {}", count, most_samples));
  }
  samples.resize(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), first);
  feed.wait_until_copied(stream, 0);
  feed.write(writer, {.samples = samples, .view = view}, 0, count);
  Batch batch;
  batch.samples = count;
  feed.enqueue_copy(stream, 0, batch);
  return batch;
}

}  // namespace tutti
