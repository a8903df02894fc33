#include "batch_writer.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti {
namespace {

// Rows first .. first + count - 1 of a tensor, whichever memory it is in.
Tensor rows_of(const Tensor& all, std::int64_t first, std::int64_t count) {
  const std::size_t row_bytes = static_cast<std::size_t>(all.shape.without_first().elements()) * bytes_of(all.type);
  return {static_cast<std::byte*>(all.data) + static_cast<std::size_t>(first) * row_bytes, all.shape.with_first(count),
          all.type, all.space};
}

}  // namespace

ImageRecipe completed(ImageRecipe recipe, const DatasetInfo& data) {
  if (recipe.image.rank() == 0) recipe.image = data.image;
  return recipe;
}

BatchMemory::BatchMemory(Backend& backend, const Shape& image, std::int64_t most_samples) : image_(image) {
  const std::int64_t samples = std::max<std::int64_t>(1, most_samples);
  images_ = backend.allocate(static_cast<std::size_t>(image.batch_of(samples).elements()) * bytes_of(ElementType::f32));
  labels_ = backend.allocate(static_cast<std::size_t>(samples) * bytes_of(ElementType::i32));
}

Batch BatchMemory::batch_of(std::int64_t samples) const {
  Batch batch;
  batch.samples = samples;
  batch.images = images_.view(image_.batch_of(samples), ElementType::f32);
  batch.labels = labels_.view(Shape{samples}, ElementType::i32);
  return batch;
}

BatchWriter::BatchWriter(const Dataset& data, Backend& backend, const ImageRecipe& recipe)
    : data_(data), backend_(backend), recipe_(recipe), writer_(recipe) {
  if (backend.memory_space() != MemorySpace::host) stream_ = backend.make_stream();
}

void BatchWriter::write(const Rows& rows, const Batch& batch) {
  if (rows.samples.empty()) return;
  const auto count = static_cast<std::int64_t>(rows.samples.size());
  const Tensor images = rows_of(batch.images, rows.first_row, count);
  const Tensor labels = rows_of(batch.labels, rows.first_row, count);
  if (stream_ == nullptr) {
    write_on_host(rows, host_f32(images), host_i32(labels));
    return;
  }
  host_images_.resize(static_cast<std::size_t>(images.elements()));
  host_labels_.resize(static_cast<std::size_t>(count));
  write_on_host(rows, host_images_, host_labels_);
  backend_.copy(*stream_, images, {host_images_.data(), images.shape, ElementType::f32, MemorySpace::host});
  backend_.copy(*stream_, labels, {host_labels_.data(), labels.shape, ElementType::i32, MemorySpace::host});
  stream_->synchronize();
}

void BatchWriter::write_on_host(const Rows& rows, std::span<float> images, std::span<std::int32_t> labels) {
  const auto image_values = static_cast<std::size_t>(recipe_.image.elements());
  const auto at_once = static_cast<std::size_t>(data_.info().samples_at_once());
  for (std::size_t first = 0; first < rows.samples.size(); first += at_once) {
    const auto samples = rows.samples.subspan(first, std::min(at_once, rows.samples.size() - first));
    data_.read(samples, samples_);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const ImageView& image = samples_.images[i];
      const ImagePlan plan = plan_image(recipe_, image.shape, {.sample = samples[i], .epoch = rows.epoch});
      writer_.write(image, plan, images.subspan((first + i) * image_values, image_values));
      labels[first + i] = samples_.labels[i];
    }
  }
}

}  // namespace tutti
