#include "batch_writer.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace tutti {
namespace {

constexpr std::array<float, 256> kUnitInterval = [] {
  std::array<float, 256> values{};
  for (std::size_t pixel = 0; pixel < values.size(); ++pixel) values[pixel] = static_cast<float>(pixel) / 255.0f;
  return values;
}();

void scale(std::span<const std::uint8_t> pixels, std::span<float> values) {
  std::transform(pixels.begin(), pixels.end(), values.begin(), [](std::uint8_t pixel) { return kUnitInterval[pixel]; });
}

}  // namespace

BatchWriter::BatchWriter(const Dataset& data, Backend& backend, std::int64_t most_samples)
    : data_(data), backend_(backend) {
  const auto elements = static_cast<std::size_t>(data.info().image.batch_of(most_samples).elements());
  pixels_.resize(elements);
  if (backend.memory_space() == MemorySpace::host) return;
  stream_ = backend.make_stream();
  host_images_.resize(elements);
  host_labels_.resize(static_cast<std::size_t>(most_samples));
}

Buffer BatchWriter::allocate_images(std::int64_t samples) const {
  const Shape shape = data_.info().image.batch_of(std::max<std::int64_t>(1, samples));
  return backend_.allocate(static_cast<std::size_t>(shape.elements()) * bytes_of(ElementType::f32));
}

Buffer BatchWriter::allocate_labels(std::int64_t samples) const {
  return backend_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(1, samples)) * bytes_of(ElementType::i32));
}

Batch BatchWriter::write(std::span<const std::int64_t> samples, const Buffer& images, const Buffer& labels) {
  Batch batch;
  batch.samples = static_cast<std::int64_t>(samples.size());
  batch.images = images.view(data_.info().image.batch_of(batch.samples), ElementType::f32);
  batch.labels = labels.view(Shape{batch.samples}, ElementType::i32);
  if (samples.empty()) return batch;

  const auto pixels = std::span(pixels_).first(static_cast<std::size_t>(batch.images.elements()));
  if (stream_ == nullptr) {
    data_.read(samples, pixels, host_i32(batch.labels));
    scale(pixels, host_f32(batch.images));
    return batch;
  }
  const Tensor host_images{host_images_.data(), batch.images.shape, ElementType::f32, MemorySpace::host};
  const Tensor host_labels{host_labels_.data(), batch.labels.shape, ElementType::i32, MemorySpace::host};
  data_.read(samples, pixels, host_i32(host_labels));
  scale(pixels, host_f32(host_images));
  backend_.copy(*stream_, batch.images, host_images);
  backend_.copy(*stream_, batch.labels, host_labels);
  stream_->synchronize();
  return batch;
}

}  // namespace tutti
