#include "backend/cpu/tiles/lane_kernels.hpp"
#include "backend/cpu/tiles/tile_work.hpp"
#include "backend/cpu/tiles/tiled_convolution.hpp"

#include <array>
#include <numeric>
#include <vector>

namespace tutti::cpu {
namespace {

constexpr std::int64_t kChunkPixels = 512;  // of outputs, whose products are added in f32

// Where lanes, outputs or inputs, read the channels of their group on the other side.
struct LaneGroups {
  std::int64_t lanes;   // of a group
  std::int64_t planes;  // of a group
  // As GroupedPlanes has it: the largest of these that divides the lanes.
  std::int64_t alike() const {
    return lanes % kAllAlike == 0 ? kAllAlike : lanes % 8 == 0 ? 8 : lanes % 4 == 0 ? 4 : 1;
  }
};

// The phases of a pass (lane_kernels.hpp), and what it keeps.
class Axis {
 public:
  // The window of a forward pass.
  Axis(const TiledShape& shape, const TileSide& from, const TileSide& to)
      : axis_{.step = shape.stride, .apart = shape.dilation, .window = shape.window},
        phases_{{shape.window, 0, -shape.padding}},
        order_(static_cast<std::size_t>(shape.window)) {
    std::iota(order_.begin(), order_.end(), 0);
    measure(from, to);
  }
  // That of its input gradient. Output o reads through tap k what is at (o + padding - k * dilation) / stride, if the
  // stride divides it.
  static Axis of_gradient(const TiledShape& shape, const TileSide& from, const TileSide& to) {
    return Axis(shape, from, to, Gradient{});
  }

  GroupedAxis view() const {
    GroupedAxis axis = axis_;
    axis.phases = phases_.data();
    axis.count = std::ssize(phases_);
    return axis;
  }
  const std::vector<std::int64_t>& order() const { return order_; }  // of taps, by phases
  // The floats of some planes' rows.
  std::int64_t kept(std::int64_t planes, std::int64_t alike) const {
    const std::int64_t floats = axis_.kept * axis_.width * planes * (alike == kAllAlike ? 1 : kBlockChannels);
    return ceil_div(floats, kBlockChannels) * kBlockChannels;
  }

 private:
  struct Gradient {};
  Axis(const TiledShape& shape, const TileSide& from, const TileSide& to, Gradient)
      : axis_{.step = 1, .apart = shape.dilation / std::gcd(shape.dilation, shape.stride), .window = shape.window} {
    for (std::int64_t first = 0; first < shape.stride; ++first) {
      GroupedPhase phase{0, std::ssize(order_), 0};
      for (std::int64_t tap = shape.window - 1; tap >= 0; --tap) {
        const std::int64_t place = first + shape.padding - tap * shape.dilation;
        if (place % shape.stride != 0) continue;
        if (phase.taps++ == 0) phase.origin = place / shape.stride;
        order_.push_back(tap);
      }
      phases_.push_back(phase);
    }
    measure(from, to);
  }

  void measure(const TileSide& from, const TileSide& to) {
    const auto count = std::ssize(phases_);
    std::int64_t right = 0;
    std::int64_t left = 0;
    for (std::int64_t i = 0; i < std::min(count, to.columns); ++i) {
      const GroupedPhase& phase = phases_[static_cast<std::size_t>(i)];
      if (phase.taps == 0) continue;
      left = std::min(left, phase.origin);
      right =
          std::max(right, (to.columns - 1 - i) / count * axis_.step + phase.origin + (phase.taps - 1) * axis_.apart);
    }
    axis_.left = left;
    axis_.width = right + 1 - left;
    const GroupedAxis axis = view();
    std::int64_t loaded = 0;
    for (std::int64_t row = 0; row < to.rows; ++row) {
      const GroupedRows rows = rows_under(axis, row, from.rows);
      if (rows.begin >= rows.end) continue;
      loaded = std::max(loaded, rows.first + (rows.end - 1) * axis.apart + 1);
      axis_.kept = std::max(axis_.kept, loaded - (rows.first + rows.begin * axis.apart));
    }
  }

  GroupedAxis axis_;
  std::vector<GroupedPhase> phases_;
  std::vector<std::int64_t> order_;
};

template <class T>
class GroupedConvolution final : public TiledConvolution {
 public:
  explicit GroupedConvolution(const TiledShape& shape)
      : input_(shape.input, kBlockChannels),
        output_(shape.output, kBlockChannels),
        images_(shape.input.shape()[0]),
        taps_(shape.window * shape.window),
        inputs_(input_.channels / shape.groups),
        outputs_(output_.channels / shape.groups),
        forward_(shape, input_, output_),
        backward_(Axis::of_gradient(shape, output_, input_)) {
    if (inputs_ == 1 && outputs_ == 1) return;
    read_by_outputs_ = places(output_, {outputs_, inputs_}, input_);
    read_by_inputs_ = places(input_, {inputs_, outputs_}, output_);
  }

  void forward(CpuStream& stream, const TiledForward& pass) const override {
    const auto weight = [&](std::int64_t output, std::int64_t plane) {
      return pass.windows + (output * inputs_ + plane) * taps_;
    };
    convolve(stream, {forward_, input_, output_, {outputs_, inputs_}, read_by_outputs_, pass.bias, pass.relu},
             static_cast<const T*>(pass.input), static_cast<T*>(pass.output), weight);
  }
  void backward_data(CpuStream& stream, const TiledBackwardData& pass) const override {
    const auto weight = [&](std::int64_t input, std::int64_t plane) {
      return pass.windows + ((input / inputs_ * outputs_ + plane) * inputs_ + input % inputs_) * taps_;
    };
    convolve(stream, {backward_, output_, input_, {inputs_, outputs_}, read_by_inputs_, nullptr, false},
             static_cast<const T*>(pass.output_gradient), static_cast<T*>(pass.input_gradient), weight);
  }
  void backward_weights(CpuStream& stream, const TiledBackwardWeights& pass) const override;

 private:
  struct Convolution {
    const Axis& axis;
    const LaneSide& from;
    const LaneSide& to;
    LaneGroups groups;
    const std::vector<std::int64_t>& places;
    const float* bias;
    bool relu;
  };
  // weight(lane, plane) is its window.
  template <class Weight>
  void convolve(CpuStream& stream, const Convolution& what, const T* from, T* to, const Weight& weight) const;

  static std::vector<std::int64_t> places(const LaneSide& lanes, const LaneGroups& groups, const LaneSide& read) {
    std::vector<std::int64_t> all;
    for (std::int64_t block = 0; block < lanes.panels(); ++block) {
      for (std::int64_t plane = 0; plane < groups.planes; ++plane) {
        for (std::int64_t i = 0; i < kBlockChannels; ++i) {
          const std::int64_t lane = std::min(block * kBlockChannels + i, lanes.channels - 1);
          all.push_back(channel_offset(read, lane / groups.lanes * groups.planes + plane));
        }
      }
    }
    return all;
  }
  static const std::int64_t* places_of(const std::vector<std::int64_t>& all, std::int64_t block, std::int64_t planes) {
    return all.empty() ? nullptr : all.data() + block * planes * kBlockChannels;
  }

  const GroupedKernels<T>& kernels_ = lane_kernels<T>().grouped;
  LaneSide input_;
  LaneSide output_;
  std::int64_t images_;
  std::int64_t taps_;
  std::int64_t inputs_, outputs_;  // of a group
  Axis forward_;
  Axis backward_;
  std::vector<std::int64_t> read_by_outputs_, read_by_inputs_;  // empty if lanes read their own channel
};

template <class T>
template <class Weight>
void GroupedConvolution<T>::convolve(CpuStream& stream, const Convolution& what, const T* from, T* to,
                                     const Weight& weight) const {
  const std::int64_t blocks = what.to.panels();
  const std::int64_t of_block = (what.groups.planes * taps_ + 1) * kBlockChannels;  // the bias first
  const std::int64_t own = what.axis.kept(what.groups.planes, what.groups.alike());
  const auto window = std::ssize(what.axis.order());
  float* const weights = stream.scratch(blocks * of_block + stream.workers() * own);
  parallel_for(stream, blocks, [&](int, std::int64_t block) {
    float* const bias = weights + block * of_block;
    std::fill_n(bias, of_block, 0.0f);
    const std::int64_t first = block * kBlockChannels;
    const std::int64_t lanes = std::min<std::int64_t>(kBlockChannels, what.to.channels - first);
    if (what.bias != nullptr) std::copy_n(what.bias + first, lanes, bias);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      float* next = bias + kBlockChannels + lane;
      for (std::int64_t plane = 0; plane < what.groups.planes; ++plane) {
        const float* const taps = weight(first + lane, plane);
        for (const std::int64_t row : what.axis.order()) {
          for (const std::int64_t column : what.axis.order()) {
            *next = taps[row * window + column];
            next += kBlockChannels;
          }
        }
      }
    }
  });
  parallel_for(stream, images_ * blocks, [&](int worker, std::int64_t item) {
    const std::int64_t image = item / blocks;
    const std::int64_t block = item % blocks;
    const float* const bias = weights + block * of_block;
    kernels_.convolve(
        {what.axis.view(),
         {image_of(what.from, from, image), block * kBlockChannels, places_of(what.places, block, what.groups.planes),
          what.groups.planes, what.groups.alike(), weights + blocks * of_block + worker * own},
         bias + kBlockChannels,
         bias,
         image_of(what.to, to, image),
         what.relu});
  });
}

// Adds the sums of chunks of images in f64, in their order.
template <class T>
void GroupedConvolution<T>::backward_weights(CpuStream& stream, const TiledBackwardWeights& pass) const {
  const LaneGroups groups{outputs_, inputs_};
  const std::int64_t each = std::clamp<std::int64_t>(kChunkPixels / (output_.rows * output_.columns), 1, images_);
  const std::int64_t chunks = ceil_div(images_, each);
  const std::int64_t blocks = output_.panels();
  const std::int64_t of_block = (inputs_ * taps_ + 1) * kBlockChannels;  // the bias last
  const std::int64_t own = forward_.kept(inputs_, groups.alike());
  float* const sums = stream.scratch(chunks * blocks * of_block + stream.workers() * own);
  const bool has_bias = pass.bias_gradient != nullptr;
  parallel_for(stream, chunks * blocks, [&](int worker, std::int64_t item) {
    const std::int64_t first = item / blocks * each;
    const std::int64_t block = item % blocks;
    float* const of_item = sums + item * of_block;
    kernels_.backward_weights({forward_.view(),
                               {image_of(input_, static_cast<const T*>(pass.input), first), block * kBlockChannels,
                                places_of(read_by_outputs_, block, inputs_), inputs_, groups.alike(),
                                sums + chunks * blocks * of_block + worker * own},
                               image_of(output_, static_cast<const T*>(pass.output_gradient), first),
                               std::min(each, images_ - first),
                               input_.image,
                               output_.image,
                               of_item,
                               has_bias ? of_item + of_block - kBlockChannels : nullptr});
  });
  parallel_for(stream, blocks, [&](int, std::int64_t block) {
    const std::int64_t first = block * kBlockChannels;
    const std::int64_t lanes = std::min<std::int64_t>(kBlockChannels, output_.channels - first);
    for (std::int64_t i = 0; i < inputs_ * taps_ + (has_bias ? 1 : 0); ++i) {
      std::array<double, kBlockChannels> all{};
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const float* const of_chunk = sums + (chunk * blocks + block) * of_block + i * kBlockChannels;
        for (std::size_t lane = 0; lane < all.size(); ++lane) all[lane] += static_cast<double>(of_chunk[lane]);
      }
      float* const to =
          i < inputs_ * taps_ ? pass.window_gradients + first * inputs_ * taps_ + i : pass.bias_gradient + first;
      const std::int64_t next = i < inputs_ * taps_ ? inputs_ * taps_ : 1;
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        to[lane * next] = static_cast<float>(all[static_cast<std::size_t>(lane)]);
      }
    }
  });
}

}  // namespace

template <class T>
std::shared_ptr<const TiledConvolution> make_grouped(const TiledShape& shape) {
  return std::make_shared<const GroupedConvolution<T>>(shape);
}
template std::shared_ptr<const TiledConvolution> make_grouped<float>(const TiledShape&);
template std::shared_ptr<const TiledConvolution> make_grouped<Bf16>(const TiledShape&);

}  // namespace tutti::cpu
