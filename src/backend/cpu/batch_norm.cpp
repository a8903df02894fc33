#include "backend/cpu/layer_loops.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/staged.hpp"
#include "backend/cpu/weights.hpp"
#include "backend/planned_layer.hpp"
#include "backend/requests.hpp"

#include <cmath>
#include <optional>

namespace tutti::cpu {
namespace {

// A factor or an addend for each channel, repeated within each block as the kernels need it. Channels that only pad a
// block have zeros, so that padding stays zero.
class PerChannel {
 public:
  explicit PerChannel(const ChannelLayout& layout)
      : period_(layout.period()),
        length_(repeated_length(period_)),
        values_(static_cast<std::size_t>(layout.blocks() * length_)) {}

  const float* of(std::int64_t block) const { return values_.data() + block * length_; }
  void set(std::int64_t block, std::int64_t channel, float value) {
    float* const repeated = values_.data() + block * length_;
    for (std::int64_t i = channel; i < length_; i += period_) repeated[i] = value;
  }

 private:
  std::int64_t period_;
  std::int64_t length_;
  std::vector<float> values_;
};

// Two sums per channel, for each slab and block.
class Sums {
 public:
  Sums(const ChannelLayout& layout, int slabs)
      : blocks_(layout.blocks()),
        period_(layout.period()),
        lanes_(lanes_of(period_)),
        slabs_(slabs),
        values_(static_cast<std::size_t>(2 * slabs * blocks_ * lanes_)) {}

  // The lanes of a block in a slab; after fold(), in slab 0, its channels.
  double* first(std::int64_t block, int slab = 0) { return values_.data() + 2 * (slab * blocks_ + block) * lanes_; }
  double* second(std::int64_t block, int slab = 0) { return first(block, slab) + lanes_; }

  void clear(std::int64_t block) {
    for (int slab = 0; slab < slabs_; ++slab) std::fill_n(first(block, slab), 2 * lanes_, 0.0);
  }
  void fold(std::int64_t block) {
    for (int slab = 1; slab < slabs_; ++slab) {
      for (std::int64_t lane = 0; lane < 2 * lanes_; ++lane) first(block)[lane] += first(block, slab)[lane];
    }
    for (double* const sums : {first(block), second(block)}) {
      for (std::int64_t lane = period_; lane < lanes_; ++lane) sums[lane % period_] += sums[lane];
    }
  }

 private:
  std::int64_t blocks_;
  std::int64_t period_;
  std::int64_t lanes_;
  int slabs_;
  std::vector<double> values_;
};

struct Statistics {
  double mean = 0;
  double variance = 0;
};

template <class T>
class BatchNormLayer final : public PlannedLayer {
 public:
  BatchNormLayer(const BatchNormSpec& spec, const LayerRequest& request)
      : PlannedLayer(request, request.input, backward_reads(spec)),
        spec_(spec),
        measures_(mode_ == LayerMode::training && !request.frozen),
        layout_(layout_of(request.input)),
        loops_(layer_loops<T>()),
        weights_(weights_of(spec, request)),
        count_(values_per_channel()),
        statistics_(static_cast<std::size_t>(layout_.channels())),
        slabs_(static_cast<int>(std::min<std::int64_t>(kMaxSlabs, layout_.segments()))),
        sums_(layout_, slabs_),
        scratch_(static_cast<std::size_t>(slabs_ * scratch_length(layout_.period()))),
        mean_(layout_),
        factor_(layout_),
        slope_(layout_),
        offset_(layout_) {
    if (spec.add) residual_.emplace(layout_of(request.residual), layout_of(request.input));
  }

  bool residual_gradient_in_place() const override { return residual_ && residual_->same_layout(); }

  void forward(Stream& stream, const LayerForward& pass) override {
    CpuStream& ours = cpu_stream(stream);
    const T* const input = static_cast<const T*>(pass.input);
    const void* residual = residual_ ? residual_->load(ours, pass.residual) : nullptr;
    if (!measures_) {
      for (std::size_t c = 0; c < statistics_.size(); ++c)
        statistics_[c] = {weights_.canonical(2)[c], weights_.canonical(3)[c]};
    }
    if (measures_ && pass.whole_batch != nullptr) {
      for_each_group([&](Group group) { sum_moments(ours, group, input); });
      count_ = add_up(ours, *pass.whole_batch);
    }
    for_each_group([&](Group group) {
      if (measures_ && pass.whole_batch == nullptr) sum_moments(ours, group, input);
      if (measures_) take_statistics(group);
      for (std::int64_t block = group.begin; block < group.end; ++block) prepare_forward(block);
      // Segments are visited in reverse order, since the last ones are still in the cache.
      for_each_segment(ours, group, Order::backward, [&](const Segment& segment, std::int64_t block, int) {
        loops_.normalize({segment, input, static_cast<const T*>(residual), static_cast<T*>(pass.output),
                          mean_.of(block), factor_.of(block), offset_.of(block), spec_.relu});
      });
    });
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(pass);
    CpuStream& ours = cpu_stream(stream);
    const std::vector<T*> gradients = typed_gradients<T>(pass);
    const T* const input = static_cast<const T*>(pass.input);
    const T* const output = spec_.relu ? static_cast<const T*>(pass.output) : nullptr;
    const auto measure = [&](Group group) {
      clear_sums(group);
      for_each_segment(ours, group, Order::forward, [&](const Segment& segment, std::int64_t block, int slab) {
        loops_.gradient_statistics({segment, gradients, output, input, mean_.of(block), sums_.first(block, slab),
                                    sums_.second(block, slab), scratch_of(slab)});
      });
      for (std::int64_t block = group.begin; block < group.end; ++block) {
        sums_.fold(block);
        prepare_backward(block, pass);
      }
    };
    const auto propagate = [&](Group group) {
      if (pass.input_gradient == nullptr) return;
      for_each_segment(ours, group, Order::backward, [&](const Segment& segment, std::int64_t block, int) {
        loops_.propagate({segment, gradients[0], input, static_cast<T*>(pass.input_gradient), mean_.of(block),
                          factor_.of(block), slope_.of(block), offset_.of(block)});
      });
    };
    if (pass.whole_batch == nullptr || !measures_) {
      for_each_group([&](Group group) {
        measure(group);
        propagate(group);
      });
    } else {
      for_each_group(measure);
      add_up(ours, *pass.whole_batch);
      for_each_channel([&](std::int64_t block, std::int64_t c) { prepare_propagation(block, c); });
      for_each_group(propagate);
    }
    if (residual_) residual_->deliver_gradient(ours, gradients[0], pass.residual_gradient);
  }

 private:
  // Blocks of channels that are processed together.
  struct Group {
    std::int64_t begin;
    std::int64_t end;
  };
  enum class Order { forward, backward };

  // A pass is divided into slabs of the batch, one task each. Small passes run in the calling thread.
  static constexpr std::int64_t kMaxSlabs = 8;
  static constexpr std::size_t kBytesWorthSharing = std::size_t{1} << 18;

  double values_per_channel() const { return static_cast<double>(layout_.samples() * layout_.pixels()); }
  float* scratch_of(int slab) { return scratch_.data() + slab * scratch_length(layout_.period()); }

  // Calls visit(group) for all blocks. A group has just enough blocks that their memory in each sample is read fast, so
  // that what is read again may still be in the caches.
  template <class Visit>
  void for_each_group(Visit visit) const {
    constexpr std::int64_t kBytes = std::int64_t{1} << 15;
    const std::int64_t of_block = layout_.pixels() * layout_.period() * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t blocks = (kBytes + of_block - 1) / of_block;
    for (std::int64_t begin = 0; begin < layout_.blocks(); begin += blocks) {
      visit(Group{begin, std::min(begin + blocks, layout_.blocks())});
    }
  }

  // Calls visit(segment, block, slab) for all segments of a group, each sample's in the order of memory.
  template <class Visit>
  void for_each_segment(CpuStream& stream, Group group, Order order, Visit visit) const {
    const std::int64_t segments = layout_.segments();
    const auto visit_slab = [&](int task) {
      const int slab = order == Order::forward ? task : slabs_ - 1 - task;
      const std::int64_t begin = slab * segments / slabs_;
      const std::int64_t end = (slab + 1) * segments / slabs_;
      for (std::int64_t i = 0; i < end - begin; ++i) {
        for (std::int64_t block = group.begin; block < group.end; ++block) {
          visit(layout_.segment(block, order == Order::forward ? begin + i : end - 1 - i), block, slab);
        }
      }
    };
    if (output_.bytes >= kBytesWorthSharing) return stream.run(slabs_, visit_slab);
    for (int task = 0; task < slabs_; ++task) visit_slab(task);
  }

  template <class Visit>
  void for_each_channel(Visit visit) const {
    for (std::int64_t block = 0; block < layout_.blocks(); ++block) {
      for (std::int64_t c = 0; c < layout_.period(); ++c) visit(block, c);
    }
  }

  void clear_sums(Group group) {
    for (std::int64_t block = group.begin; block < group.end; ++block) sums_.clear(block);
  }

  void sum_moments(CpuStream& stream, Group group, const T* input) {
    clear_sums(group);
    for_each_segment(stream, group, Order::forward, [&](const Segment& segment, std::int64_t block, int slab) {
      loops_.moments({segment, input, sums_.first(block, slab), sums_.second(block, slab), scratch_of(slab)});
    });
    for (std::int64_t block = group.begin; block < group.end; ++block) sums_.fold(block);
    count_ = values_per_channel();
  }

  // Replaces both sums of each channel by those over the whole batch, and returns the number of its values.
  double add_up(CpuStream& stream, WholeBatchSum& whole_batch) {
    std::vector<double> values;
    for_each_channel([&](std::int64_t block, std::int64_t c) {
      values.insert(values.end(), {sums_.first(block)[c], sums_.second(block)[c]});
    });
    values.push_back(values_per_channel());
    whole_batch.sum(stream, {values.data(), Shape{std::ssize(values)}, ElementType::f64, MemorySpace::host});
    const double* value = values.data();
    for_each_channel([&](std::int64_t block, std::int64_t c) {
      sums_.first(block)[c] = *value++;
      sums_.second(block)[c] = *value++;
    });
    return *value;
  }

  void take_statistics(Group group) {
    for (std::int64_t block = group.begin; block < group.end; ++block) {
      for (std::int64_t c = 0; c < layout_.period(); ++c) {
        const double mean = sums_.first(block)[c] / count_;
        const double variance = std::max(0.0, sums_.second(block)[c] / count_ - mean * mean);
        statistics_[static_cast<std::size_t>(block * layout_.period() + c)] = {mean, variance};
      }
    }
  }

  // The kernels subtract a mean in single precision; the offset contains the difference from the true mean.
  void prepare_forward(std::int64_t block) {
    for (std::int64_t c = 0; c < layout_.period(); ++c) {
      const std::int64_t channel = block * layout_.period() + c;
      const Statistics& statistics = statistics_[static_cast<std::size_t>(channel)];
      const double factor = weights_.canonical(0)[channel] / std::sqrt(statistics.variance + spec_.epsilon);
      const auto mean = static_cast<float>(statistics.mean);
      mean_.set(block, c, mean);
      factor_.set(block, c, static_cast<float>(factor));
      offset_.set(block, c, static_cast<float>(weights_.canonical(1)[channel] + (mean - statistics.mean) * factor));
    }
  }

  // The gradients of a channel's scale and shift, from its sums.
  struct ChannelGradients {
    double scale;
    double shift;
  };
  // dx = factor * (dy - mean of dy - (x - mean) / (variance + epsilon) * mean of dy * (x - mean)), or, with running
  // statistics, factor * dy.
  ChannelGradients prepare_propagation(std::int64_t block, std::int64_t c) {
    const std::int64_t channel = block * layout_.period() + c;
    const Statistics& statistics = statistics_[static_cast<std::size_t>(channel)];
    const double inverse = 1 / std::sqrt(statistics.variance + spec_.epsilon);
    const double factor = weights_.canonical(0)[channel] * inverse;
    // The kernels' mean is rounded.
    const double rounding = statistics.mean - static_cast<float>(statistics.mean);
    const double sum = sums_.first(block)[c];
    const double product = sums_.second(block)[c] - rounding * sum;
    const double slope = factor * inverse * inverse * product / count_;
    slope_.set(block, c, measures_ ? static_cast<float>(slope) : 0.0f);
    offset_.set(block, c, measures_ ? static_cast<float>(factor * sum / count_ - slope * rounding) : 0.0f);
    return {.scale = product * inverse, .shift = sum};
  }

  void prepare_backward(std::int64_t block, const LayerBackward& pass) {
    const auto gradient = [&](std::size_t index) { return static_cast<float*>(pass.gradients[index].data); };
    const double unbiased = count_ / std::max(count_ - 1, 1.0);
    for (std::int64_t c = 0; c < layout_.period(); ++c) {
      const std::int64_t channel = block * layout_.period() + c;
      const Statistics& statistics = statistics_[static_cast<std::size_t>(channel)];
      const auto [scale, shift] = prepare_propagation(block, c);
      gradient(0)[channel] = static_cast<float>(scale);
      gradient(1)[channel] = static_cast<float>(shift);
      gradient(2)[channel] = static_cast<float>(statistics.mean * pass.sample_fraction);
      gradient(3)[channel] = static_cast<float>(statistics.variance * unbiased * pass.sample_fraction);
    }
  }

  BatchNormSpec spec_;
  bool measures_;  // the statistics of the batch
  ChannelLayout layout_;
  const LayerLoops<T>& loops_;
  const CpuWeights& weights_;  // scale, shift, mean, variance
  std::optional<Staged> residual_;
  double count_;                        // the values of each channel in the statistics
  std::vector<Statistics> statistics_;  // of the last batch
  int slabs_;
  Sums sums_;
  std::vector<float> scratch_;
  PerChannel mean_;
  PerChannel factor_;
  PerChannel slope_;
  PerChannel offset_;
};

}  // namespace

std::unique_ptr<Layer> make(ElementType, const BatchNormSpec& spec, const LayerRequest& request) {
  if (spec.add) require_residual(spec, request);
  return make_typed<BatchNormLayer>(request, spec, request);
}

}  // namespace tutti::cpu
