#include "batch_feed.hpp"

#include "tutti/base/error.hpp"

#include "image_codec.hpp"
#include "image_operations.hpp"
#include "lazy_datasets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kAlignment = 256;

// Row `row` of a table in host memory.
template <class T>
T* row_of(const Tensor& table, std::int64_t row) {
  return static_cast<T*>(table.data) + row * table.shape.without_first().elements();
}

void store_row(const AxisWeights& axis, const AxisTables& tables, std::int64_t row) {
  const std::int64_t taps = axis.taps();
  if (taps > tables.weights.shape[1]) {
    throw Error(ErrorSource::internal,
                fmt::format("an axis of {} taps in tables made for {}", taps, tables.weights.shape[1]));
  }
  *row_of<std::int32_t>(tables.taps, row) = static_cast<std::int32_t>(taps);
  std::ranges::transform(axis.first(), row_of<std::int32_t>(tables.first, row),
                         [](std::int64_t first) { return static_cast<std::int32_t>(first); });
  std::copy_n(axis.weights(0), taps * std::ssize(axis.first()), row_of<float>(tables.weights, row));
}

Tensor bytes_view(const Buffer& memory, std::size_t bytes) {
  return memory.view(Shape{static_cast<std::int64_t>(bytes)}, ElementType::u8);
}

// One value per channel in the backend's memory: the given values, or `other` if there are none.
Buffer channel_values(Backend& backend, std::int64_t channels, const std::vector<double>& given, float other) {
  std::vector<float> values(static_cast<std::size_t>(channels), other);
  std::ranges::transform(given, values.begin(), [](double value) { return static_cast<float>(value); });
  const Shape shape{channels};
  Buffer memory = backend.allocate(values.size() * sizeof(float));
  const auto stream = backend.make_stream();
  backend.copy(*stream, memory.view(shape, ElementType::f32),
               {values.data(), shape, ElementType::f32, MemorySpace::host});
  stream->synchronize();
  return memory;
}

}  // namespace

ImageRecipe with_image_shape(ImageRecipe recipe, const DatasetInfo& data) {
  if (recipe.image.ndim() == 0) recipe.image = data.image;
  return recipe;
}

BatchLayout::BatchLayout(const ImageRecipe& recipe, const Shape& image) : image_(recipe.image) {
  const ImagePlan widest = widest_plan(recipe, image);
  rows_ = {recipe.image[1], AxisWeights::most_taps(widest.rows)};
  columns_ = {recipe.image[2], AxisWeights::most_taps(widest.columns)};
}

std::size_t BatchLayout::place_tensors(std::int64_t samples, const Buffer* memory, ImageGather& batch) const {
  std::size_t offset = 0;
  const auto place = [&](Tensor& tensor, const Shape& shape, ElementType type) {
    if (memory != nullptr) tensor = memory->view(shape, type, offset);
    const std::size_t end = offset + static_cast<std::size_t>(shape.elements()) * bytes_of(type);
    offset = (end + kAlignment - 1) / kAlignment * kAlignment;
  };
  const auto place_axis = [&](AxisTables& axis, const Axis& sizes) {
    place(axis.taps, Shape{samples}, ElementType::i32);
    place(axis.first, Shape{samples, sizes.outputs}, ElementType::i32);
    place(axis.weights, Shape{samples, sizes.most_taps, sizes.outputs}, ElementType::f32);
  };
  if (rows_) {
    place(batch.samples, Shape{samples}, ElementType::i32);
    place_axis(batch.rows, *rows_);
    place_axis(batch.columns, columns_);
  } else {
    place(batch.images, image_.batch_of(samples), ElementType::f32);
    place(batch.labels, Shape{samples}, ElementType::i32);
    if (mixes_) place(batch.labels.others, Shape{samples}, ElementType::i32);
    if (mixes_) place(batch.labels.shares, Shape{samples}, ElementType::f32);
  }
  return offset;
}

std::size_t BatchLayout::bytes(std::int64_t samples) const {
  ImageGather none;
  return place_tensors(samples, nullptr, none);
}

ImageGather BatchLayout::view(const Buffer& memory, std::int64_t samples) const {
  ImageGather batch;
  place_tensors(samples, &memory, batch);
  return batch;
}

SampleKey key_of(const BatchRows& rows, std::size_t row) {
  const std::int64_t sample = rows.samples[row];
  const std::int64_t item = rows.first_item ? *rows.first_item + static_cast<std::int64_t>(row) : sample;
  return {.sample = sample, .epoch = rows.epoch, .item = item};
}

void BatchWriter::write(const BatchRows& rows, const ImageGather& batch) {
  if (batch.samples.data == nullptr) return write_pixels(rows, batch);
  std::int64_t row = rows.first_row;
  for (std::size_t i = 0; i < rows.samples.size(); ++i) {
    const std::int64_t sample = rows.samples[i];
    const ImagePlan planned = plan(data_.info().image, key_of(rows, i), rows.view);
    rows_.plan(planned.rows);
    columns_.plan(planned.columns);
    *row_of<std::int32_t>(batch.samples, row) = static_cast<std::int32_t>(sample);
    store_row(rows_, batch.rows, row);
    store_row(columns_, batch.columns, row++);
  }
}

ImagePlan BatchWriter::plan(const Shape& image, const SampleKey& key, const ChunkView& view) const {
  ImagePlan plan = plan_image(recipe_, image, key);
  plan.rows.shift += view.shift;
  plan.columns.shift += view.shift;
  plan.columns.mirrored = plan.columns.mirrored != view.mirrored;
  return plan;
}

void BatchWriter::write_pixels(const BatchRows& rows, const ImageGather& batch) {
  const auto first_row = static_cast<std::size_t>(rows.first_row);
  const auto image_values = static_cast<std::size_t>(recipe_.image.elements());
  const auto values = host_f32(batch.images).subspan(first_row * image_values);
  const auto classes = host_i32(batch.labels).subspan(first_row);
  const auto values_of = [&](std::size_t row) { return values.subspan(row * image_values, image_values); };
  const bool is_encoded = data_.is_encoded();
  const auto at_once = static_cast<std::size_t>(is_encoded ? 1 : data_.info().samples_at_once());
  for (std::size_t first = 0; first < rows.samples.size(); first += at_once) {
    const auto samples = rows.samples.subspan(first, std::min(at_once, rows.samples.size() - first));
    if (!is_encoded) data_.read(samples, samples_);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::size_t row = first + i;
      const SampleKey key = key_of(rows, row);
      if (is_encoded) {
        write_encoded(samples[i], key, rows.view, values_of(row));
        classes[row] = data_.labels()[data_.info().index_of(samples[i])];
      } else {
        const ImageView& image = samples_.images[i];
        resampler().write(image, plan(image.shape, key, rows.view), values_of(row));
        classes[row] = samples_.labels[i];
      }
      augment(key, values_of(row));
    }
  }
  if (recipe_.augment.mixes()) mix(rows, batch);
}

void BatchWriter::mix(const BatchRows& rows, const ImageGather& batch) {
  const Mixing mixing = draw_mixing(recipe_, rows.epoch, rows.step);
  const auto first_row = static_cast<std::size_t>(rows.first_row);
  const auto image_values = static_cast<std::size_t>(recipe_.image.elements());
  const auto values = host_f32(batch.images).subspan(first_row * image_values);
  const auto labels = host_i32(batch.labels).subspan(first_row);
  const auto others = host_i32(batch.labels.others).subspan(first_row);
  const auto shares = host_f32(batch.labels.shares).subspan(first_row);
  const std::size_t count = rows.samples.size();
  for (std::size_t i = 0; i + 1 < count; i += 2) {
    mix_images(mixing, recipe_.image, values.data() + i * image_values, values.data() + (i + 1) * image_values);
    others[i] = labels[i + 1];
    others[i + 1] = labels[i];
    if (mixing.share < 0.5f) std::swap(labels[i], labels[i + 1]);
    if (mixing.share < 0.5f) std::swap(others[i], others[i + 1]);
    shares[i] = shares[i + 1] = std::max(mixing.share, 1 - mixing.share);
  }
  if (count % 2 == 0) return;
  others[count - 1] = labels[count - 1];
  shares[count - 1] = 1;
}

void BatchWriter::write_encoded(std::int64_t sample, const SampleKey& key, const ChunkView& view,
                                std::span<float> values) {
  const ImageFile file = data_.image_file(sample, file_);
  ImagePlan planned;
  const auto region_of = [&](const Shape& image) {
    check_image_shape(data_.info(), file, image);
    planned = plan(image, key, view);
    if (recipe_.augment.scaled_decode && decodes_scaled(file)) {
      planned.rows.eighths = planned.columns.eighths = least_eighths(planned);
    }
    return resampler().region_of(planned);
  };
  const RegionPixels pixels = decode_region(file, recipe_.image[0], region_of, decoded_);
  resampler().write(pixels, planned, values);
}

void BatchWriter::augment(const SampleKey& key, std::span<float> values) {
  if (recipe_.augment.changes_bytes()) {
    pixels_.resize(values.size());
    std::ranges::transform(values, pixels_.begin(), byte_of);
    for (const ImageOperation& operation : draw_operations(recipe_.augment, recipe_.seed, key, recipe_.image)) {
      apply(operation, recipe_.image, pixels_);
    }
    const ImageView changed{pixels_.data(), recipe_.image};
    images_.write(changed, plan_image(whole_, recipe_.image, key), values);
  }
  if (recipe_.augment.erase == 0) return;
  const ErasedBox erased = draw_erased(recipe_, key);
  for (std::int64_t plane = 0; plane < recipe_.image[0]; ++plane) {
    for (std::int64_t y = erased.rows.begin; y < erased.rows.end; ++y) {
      const std::int64_t first = (plane * recipe_.image[1] + y) * recipe_.image[2] + erased.columns.begin;
      std::fill_n(values.begin() + first, erased.columns.size(), 0.0f);
    }
  }
}

TransferContext::TransferContext(const Dataset& data, Backend& on, const ImageRecipe& recipe)
    : backend(on), batch_layout(recipe), staged_layout(recipe) {
  if (backend.memory_space() == MemorySpace::host) return;
  copy_stream = backend.make_stream();
  const auto images = data.resident_images();
  if (images && recipe.augment.only_resamples()) store = backend.upload_dataset(*images);
  if (!store) return;
  staged_layout = BatchLayout(recipe, images->image);
  means = channel_values(backend, recipe.image[0], recipe.statistics.mean, 0.0f);
  deviations = channel_values(backend, recipe.image[0], recipe.statistics.deviation, 1.0f);
}

BatchFeed::BatchFeed(const TransferContext& context, std::int64_t most_samples, std::size_t slots) : context_(context) {
  Backend& backend = context.backend;
  const std::int64_t most = std::max<std::int64_t>(1, most_samples);
  const std::size_t bytes = context.staged_layout.bytes(most);
  for (std::size_t i = 0; i < slots; ++i) {
    if (context.copy_stream) {
      slots_.push_back({backend.allocate_staging(bytes), backend.make_event()});
    } else {
      slots_.push_back({backend.allocate(bytes), nullptr});
    }
  }
  if (!context.copy_stream) return;
  device_staging_ = backend.allocate(bytes);
  device_staging_free_ = backend.make_event();
  delivered_ = backend.allocate(context.batch_layout.bytes(most));
}

void BatchFeed::enqueue_copy(Stream& stream, std::size_t slot, Batch& batch) {
  const auto& [memory, copied] = slots_[slot];
  const ImageGather whole = context_.batch_layout.view(context_.copy_stream ? delivered_ : memory, batch.samples);
  batch.images = whole.images;
  batch.labels = whole.labels;
  if (!context_.copy_stream || batch.samples == 0) return;
  const std::size_t bytes = context_.staged_layout.bytes(batch.samples);
  context_.copy_stream->wait_event(*device_staging_free_);
  context_.backend.copy(*context_.copy_stream, bytes_view(device_staging_, bytes), bytes_view(memory, bytes));
  context_.copy_stream->record(*copied);
  stream.wait_event(*copied);
  ImageGather arrived = context_.staged_layout.view(device_staging_, batch.samples);
  if (context_.store) {
    const Shape channels{batch.images.shape[1]};
    arrived.means = context_.means.view(channels, ElementType::f32);
    arrived.deviations = context_.deviations.view(channels, ElementType::f32);
    arrived.images = batch.images;
    arrived.labels = batch.labels;
    context_.store->gather(stream, arrived);
  } else {
    context_.backend.copy(stream, batch.images, arrived.images);
    context_.backend.copy(stream, batch.labels, arrived.labels);
    if (batch.labels.others.data != nullptr) {
      context_.backend.copy(stream, batch.labels.others, arrived.labels.others);
      context_.backend.copy(stream, batch.labels.shares, arrived.labels.shares);
    }
  }
  stream.record(*device_staging_free_);
}

}  // namespace tutti
