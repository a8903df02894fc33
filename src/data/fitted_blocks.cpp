#include "fitted_blocks.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"

#include "augmentation.hpp"
#include "image_writer.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;
// So that few images that take long to decode are shared out, too.
constexpr std::int64_t kMostSlowSamples = 64;
constexpr std::size_t kBlocksPerThread = 2;

std::int64_t samples_per_block(const Dataset& set, const Shape& image) {
  const std::int64_t fitting = std::max<std::int64_t>(1, kBlockBytes / image.elements());
  return set.resident_bytes() > 0 ? fitting : std::min(fitting, kMostSlowSamples);
}

// What one thread needs to make blocks.
class BlockMaker {
 public:
  explicit BlockMaker(const Fitting& fitting) : set_(fitting.set), recipe_(fitting.recipe), writer_(fitting.recipe) {}

  FittedBlock make(std::int64_t first, std::int64_t count) {
    const DatasetInfo& info = set_.info();
    const Shape& image = recipe_.image;
    FittedBlock block{{}, {}, {}, 0, ChannelSums(image[0], image[1] * image[2])};
    block.pixels.reserve(static_cast<std::size_t>(count * image.elements()));
    const std::int64_t at_once = info.samples_at_once();
    for (std::int64_t read = 0; read < count; read += at_once) {
      samples_.resize(static_cast<std::size_t>(std::min(at_once, count - read)));
      std::iota(samples_.begin(), samples_.end(), first + read);
      set_.read(samples_, batch_);
      for (const ImageView& view : batch_.images) append(view, block.pixels);
      block.labels.insert(block.labels.end(), batch_.labels.begin(), batch_.labels.end());
    }
    const std::span<const std::uint8_t> pixels(block.pixels);
    block.sums.add(pixels);
    const auto image_bytes = static_cast<std::size_t>(image.elements());
    for (std::size_t at = 0; at < pixels.size(); at += image_bytes) {
      block.checksums.push_back(static_cast<std::int32_t>(crc32c(std::as_bytes(pixels.subspan(at, image_bytes)))));
    }
    block.digest = digest("images", pixels, static_cast<std::uint64_t>(first * image.elements()));
    return block;
  }

 private:
  void append(const ImageView& view, std::vector<std::uint8_t>& pixels) {
    const auto elements = static_cast<std::size_t>(recipe_.image.elements());
    if (view.shape == recipe_.image) {
      pixels.insert(pixels.end(), view.pixels, view.pixels + elements);
      return;
    }
    values_.resize(elements);
    writer_.write(view, plan_image(recipe_, view.shape, {}), values_);
    std::ranges::transform(values_, std::back_inserter(pixels),
                           [](float value) { return static_cast<std::uint8_t>(value * 255.0f + 0.5f); });
  }

  const Dataset& set_;
  const ImageRecipe& recipe_;
  ImageWriter writer_;
  std::vector<float> values_;  // of 0 to 1
  std::vector<std::int64_t> samples_;
  SampleBatch batch_;
};

// Blocks are begun in order, and no further ahead of the last one handed over than there are slots.
class BlockLine {
 public:
  explicit BlockLine(const Fitting& fitting)
      : fitting_(fitting),
        per_block_(samples_per_block(fitting.set, fitting.recipe.image)),
        blocks_(static_cast<std::size_t>((fitting.set.info().samples + per_block_ - 1) / per_block_)),
        slots_(std::min(blocks_, kBlocksPerThread * static_cast<std::size_t>(fitting.threads))) {
    for (std::size_t i = 0; i < std::min(blocks_, static_cast<std::size_t>(fitting.threads)); ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  }

  void hand_over(const std::function<void(const FittedBlock&)>& take) {
    for (; taken_ < blocks_; advance()) {
      Slot& slot = slots_[taken_ % slots_.size()];
      await(slot);
      if (slot.failure != nullptr) std::rethrow_exception(slot.failure);
      take(*slot.block);
    }
  }

 private:
  struct Slot {
    std::optional<FittedBlock> block;
    std::exception_ptr failure;
    bool is_filled() const { return block.has_value() || failure != nullptr; }
  };

  void work(const std::stop_token& stop) {
    BlockMaker maker(fitting_);
    std::unique_lock lock(mutex_);
    const auto may_begin = [this] { return begun_ == blocks_ || begun_ < taken_ + slots_.size(); };
    while (changed_.wait(lock, stop, may_begin) && begun_ < blocks_) {
      const std::size_t number = begun_++;
      lock.unlock();
      Slot made = make(maker, number);
      lock.lock();
      slots_[number % slots_.size()] = std::move(made);
      changed_.notify_all();
    }
  }

  Slot make(BlockMaker& maker, std::size_t number) const {
    const std::int64_t first = static_cast<std::int64_t>(number) * per_block_;
    try {
      return {maker.make(first, std::min(per_block_, fitting_.set.info().samples - first)), nullptr};
    } catch (...) {
      return {std::nullopt, std::current_exception()};
    }
  }

  void await(const Slot& slot) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return slot.is_filled(); });
  }
  void advance() {
    const std::lock_guard lock(mutex_);
    slots_[taken_ % slots_.size()] = {};
    ++taken_;
    changed_.notify_all();
  }

  const Fitting& fitting_;
  const std::int64_t per_block_;
  const std::size_t blocks_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::size_t begun_ = 0;
  std::size_t taken_ = 0;
  std::vector<std::jthread> threads_;  // the last member: stopped and joined before the others go
};

}  // namespace

void for_each_block(const Fitting& fitting, const std::function<void(const FittedBlock&)>& take) {
  BlockLine(fitting).hand_over(take);
}

}  // namespace tutti
