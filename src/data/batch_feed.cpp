#include "batch_feed.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// Memory for batches of up to `most_samples`.
class BatchMemory {
 public:
  BatchMemory(Backend& backend, const Shape& image, std::int64_t most_samples) : image_(image) {
    const std::int64_t samples = std::max<std::int64_t>(1, most_samples);
    images_ =
        backend.allocate(static_cast<std::size_t>(image.batch_of(samples).elements()) * bytes_of(ElementType::f32));
    labels_ = backend.allocate(static_cast<std::size_t>(samples) * bytes_of(ElementType::i32));
  }
  Batch batch_of(std::int64_t samples) const {
    Batch batch;
    batch.samples = samples;
    batch.images = images_.view(image_.batch_of(samples), ElementType::f32);
    batch.labels = labels_.view(Shape{samples}, ElementType::i32);
    return batch;
  }

 private:
  Shape image_;
  Buffer images_;
  Buffer labels_;
};

Tensor bytes_view(const Buffer& memory, std::size_t bytes) {
  return memory.view(Shape{static_cast<std::int64_t>(bytes)}, ElementType::u8);
}

// Values in the host's memory, only read.
template <class T>
Tensor host_view(const std::vector<T>& values, ElementType type) {
  return {const_cast<T*>(values.data()), Shape{std::ssize(values)}, type, MemorySpace::host};
}

}  // namespace

class BatchRoute::HeldSet {
 public:
  HeldSet(std::unique_ptr<ImageStore> store, Backend& backend, const ImageRecipe& recipe, const Shape& image)
      : store_(std::move(store)), layout_(recipe, image) {
    const auto channels = static_cast<std::size_t>(recipe.image[0]);
    const auto& [mean, deviation] = recipe.statistics;
    std::vector<float> means(channels, 0.0f);
    std::vector<float> deviations(channels, 1.0f);
    std::ranges::transform(mean, means.begin(), [](double value) { return static_cast<float>(value); });
    std::ranges::transform(deviation, deviations.begin(), [](double value) { return static_cast<float>(value); });
    const auto stream = backend.make_stream();
    const auto move_over = [&](const std::vector<float>& values) {
      Buffer memory = backend.allocate(channels * sizeof(float));
      backend.copy(*stream, memory.view(Shape{std::ssize(values)}, ElementType::f32),
                   host_view(values, ElementType::f32));
      return memory;
    };
    means_ = move_over(means);
    deviations_ = move_over(deviations);
    stream->synchronize();
  }

  const TableLayout& layout() const { return layout_; }
  // `tables` in the processor's memory.
  void gather(Stream& stream, const ImageTables& tables, const Batch& batch) {
    const Shape channels{batch.images.shape[1]};
    store_->gather(stream, {.samples = tables.samples,
                            .rows = tables.rows,
                            .columns = tables.columns,
                            .means = means_.view(channels, ElementType::f32),
                            .deviations = deviations_.view(channels, ElementType::f32),
                            .images = batch.images,
                            .labels = batch.labels});
  }

 private:
  std::unique_ptr<ImageStore> store_;
  TableLayout layout_;
  Buffer means_;
  Buffer deviations_;
};

// The host's own processor computes where the readers wrote.
class BatchRoute::HostFeed final : public BatchFeed {
 public:
  HostFeed(const BatchRoute& route, std::int64_t most_samples, std::size_t slots) {
    for (std::size_t i = 0; i < slots; ++i) slots_.emplace_back(route.backend_, route.image_, most_samples);
  }
  void write(BatchWriter& writer, const Preparation& preparation) override {
    const Batch batch = slots_[preparation.slot].batch_of(preparation.samples);
    writer.write(preparation.rows, batch.images, batch.labels);
  }
  Batch deliver(Stream&, std::size_t slot, std::int64_t samples) override { return slots_[slot].batch_of(samples); }
  void await_sent(Stream&, std::size_t) override {}

 private:
  std::vector<BatchMemory> slots_;
};

class BatchRoute::DeviceFeed : public BatchFeed {
 public:
  DeviceFeed(BatchRoute& route, std::int64_t most_samples)
      : backend_(route.backend_),
        copies_(*route.copies_),
        place_(route.backend_, route.image_, most_samples),
        landing_free_(route.backend_.make_event()) {}

  Batch deliver(Stream& stream, std::size_t slot, std::int64_t samples) override {
    const Batch batch = place_.batch_of(samples);
    if (samples == 0) return batch;
    const auto& [staging, sent] = slots_[slot];
    const std::size_t bytes = bytes_for(samples);
    copies_.follow(*landing_free_);
    backend_.copy(copies_, bytes_view(landing_, bytes), bytes_view(staging, bytes));
    copies_.record(*sent);
    stream.follow(*sent);
    unpack(stream, landing_, batch);
    stream.record(*landing_free_);
    return batch;
  }
  void await_sent(Stream& stream, std::size_t slot) override { stream.await(*slots_[slot].sent); }

 protected:
  void make_slots(std::size_t slots, std::size_t most_bytes) {
    landing_ = backend_.allocate(most_bytes);
    for (std::size_t i = 0; i < slots; ++i) {
      slots_.push_back({backend_.allocate_staging(most_bytes), backend_.make_event()});
    }
  }
  const Buffer& staging(std::size_t slot) const { return slots_[slot].staging; }
  Backend& backend() const { return backend_; }

 private:
  virtual std::size_t bytes_for(std::int64_t samples) const = 0;
  // From where the copy landed to the batch's place.
  virtual void unpack(Stream& stream, const Buffer& landing, const Batch& batch) = 0;

  struct Slot {
    Buffer staging;
    std::unique_ptr<Event> sent;
  };
  Backend& backend_;
  Stream& copies_;
  BatchMemory place_;
  Buffer landing_;
  std::unique_ptr<Event> landing_free_;
  std::vector<Slot> slots_;
};

class BatchRoute::PixelFeed final : public DeviceFeed {
 public:
  PixelFeed(BatchRoute& route, std::int64_t most_samples, std::size_t slots)
      : DeviceFeed(route, most_samples), image_(route.image_) {
    make_slots(slots, bytes_for(std::max<std::int64_t>(1, most_samples)));
  }
  void write(BatchWriter& writer, const Preparation& preparation) override {
    const auto [images, labels] = views_of(staging(preparation.slot), preparation.samples);
    writer.write(preparation.rows, images, labels);
  }

 private:
  struct Views {
    Tensor images;
    Tensor labels;
  };
  std::size_t image_bytes(std::int64_t samples) const {
    return static_cast<std::size_t>(image_.batch_of(samples).elements()) * sizeof(float);
  }
  Views views_of(const Buffer& memory, std::int64_t samples) const {
    return {memory.view(image_.batch_of(samples), ElementType::f32),
            memory.view(Shape{samples}, ElementType::i32, image_bytes(samples))};
  }
  std::size_t bytes_for(std::int64_t samples) const override {
    return image_bytes(samples) + static_cast<std::size_t>(samples) * sizeof(std::int32_t);
  }
  void unpack(Stream& stream, const Buffer& landing, const Batch& batch) override {
    const auto [images, labels] = views_of(landing, batch.samples);
    backend().copy(stream, batch.images, images);
    backend().copy(stream, batch.labels, labels);
  }

  Shape image_;
};

class BatchRoute::TableFeed final : public DeviceFeed {
 public:
  TableFeed(BatchRoute& route, std::int64_t most_samples, std::size_t slots)
      : DeviceFeed(route, most_samples), held_(*route.held_) {
    make_slots(slots, bytes_for(std::max<std::int64_t>(1, most_samples)));
  }
  void write(BatchWriter& writer, const Preparation& preparation) override {
    writer.write(preparation.rows, held_.layout().tables(staging(preparation.slot), preparation.samples));
  }

 private:
  std::size_t bytes_for(std::int64_t samples) const override { return held_.layout().bytes(samples); }
  void unpack(Stream& stream, const Buffer& landing, const Batch& batch) override {
    held_.gather(stream, held_.layout().tables(landing, batch.samples), batch);
  }

  HeldSet& held_;
};

BatchRoute::BatchRoute(const Dataset& data, Backend& backend, const ImageRecipe& recipe)
    : backend_(backend), image_(recipe.image) {
  if (backend.memory_space() == MemorySpace::host) return;
  copies_ = backend.make_stream();
  const auto images = data.resident_images();
  auto store = images ? backend.hold_images(*images) : nullptr;
  if (store) held_ = std::make_unique<HeldSet>(std::move(store), backend, recipe, images->image);
}

BatchRoute::~BatchRoute() = default;

std::unique_ptr<BatchFeed> BatchRoute::make_feed(std::int64_t most_samples, std::size_t slots) {
  if (!copies_) return std::make_unique<HostFeed>(*this, most_samples, slots);
  if (!held_) return std::make_unique<PixelFeed>(*this, most_samples, slots);
  return std::make_unique<TableFeed>(*this, most_samples, slots);
}

}  // namespace tutti
