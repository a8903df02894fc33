#include "residual_models.hpp"

#include <fmt/format.h>

#include <array>

namespace tutti {
namespace {

constexpr int kStages = 4;
using BlockCounts = std::array<int, kStages>;

// Appends layers, each of which takes the output of the one before unless told otherwise.
class Writer {
 public:
  explicit Writer(bool bias) : bias_(bias) {}

  void add(std::string name, const LayerSpec& spec, std::string input = "", std::string residual = "") {
    layers_.push_back({std::move(name), spec, std::move(input), std::move(residual)});
  }
  // Keeps the size of images but for its stride.
  Conv2dSpec convolution(std::int64_t channels, std::int64_t kernel, std::int64_t stride) const {
    return {.channels = channels, .kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = bias_};
  }
  const std::string& last() const { return layers_.back().name; }
  std::vector<LayerNode> take() && { return std::move(layers_); }

 private:
  bool bias_;
  std::vector<LayerNode> layers_;
};

struct BlockPlace {
  std::string name;  // "stage1.block1"
  std::int64_t channels;
  std::int64_t stride;
  bool shortcut;  // a convolution, where the block's input has another shape than its output
};

void add_basic_block(Writer& writer, const BlockPlace& block) {
  const auto name = [&](const char* layer) { return block.name + "." + layer; };
  const std::string input = writer.last();
  if (block.shortcut) writer.add(name("shortcut"), writer.convolution(block.channels, 1, block.stride));
  writer.add(name("conv1"), writer.convolution(block.channels, 3, block.stride), block.shortcut ? input : "");
  writer.add(name("norm1"), BatchNormSpec{.relu = true});
  writer.add(name("conv2"), writer.convolution(block.channels, 3, 1));
  writer.add(name("norm2"), BatchNormSpec{.add = true, .relu = true}, "", block.shortcut ? name("shortcut") : input);
}

void add_bottleneck(Writer& writer, const BlockPlace& block) {
  const auto name = [&](const char* layer) { return block.name + "." + layer; };
  const std::string input = writer.last();
  const std::int64_t wide = 4 * block.channels;
  if (block.shortcut) {
    writer.add(name("shortcut"), writer.convolution(wide, 1, block.stride));
    writer.add(name("shortcut_norm"), BatchNormSpec{});
  }
  writer.add(name("conv1"), writer.convolution(block.channels, 1, 1), block.shortcut ? input : "");
  writer.add(name("norm1"), BatchNormSpec{.relu = true});
  writer.add(name("conv2"), writer.convolution(block.channels, 3, block.stride));
  writer.add(name("norm2"), BatchNormSpec{.relu = true});
  writer.add(name("conv3"), writer.convolution(wide, 1, 1));
  writer.add(name("norm3"), BatchNormSpec{.add = true, .relu = true}, "",
             block.shortcut ? name("shortcut_norm") : input);
}

struct Stages {
  BlockCounts blocks;
  void (*add_block)(Writer& writer, const BlockPlace& block);
  bool widens_in_the_first;  // so that its first block, too, needs a shortcut
};

void add_stages(Writer& writer, const Stages& stages) {
  std::int64_t channels = 64;
  for (int stage = 1; stage <= kStages; ++stage, channels *= 2) {
    for (int block = 1; block <= stages.blocks.at(static_cast<std::size_t>(stage) - 1); ++block) {
      const bool halves = block == 1 && stage > 1;
      stages.add_block(writer, {.name = fmt::format("stage{}.block{}", stage, block),
                                .channels = channels,
                                .stride = halves ? 2 : 1,
                                .shortcut = halves || (block == 1 && stages.widens_in_the_first)});
    }
  }
  writer.add("pool", GlobalAveragePoolSpec{});
  writer.add("head", LinearSpec{.units = kUnitsAsClasses});
}

NetworkSpec for_small_images(const char* name, const BlockCounts& blocks) {
  Writer writer(true);
  writer.add("stem.conv", writer.convolution(64, 3, 1));
  writer.add("stem.norm", BatchNormSpec{.relu = true});
  add_stages(writer, {.blocks = blocks, .add_block = add_basic_block, .widens_in_the_first = false});
  return {name, Initializer::xavier, std::move(writer).take()};
}

}  // namespace

NetworkSpec resnet18() { return for_small_images("resnet18", {2, 2, 2, 2}); }
NetworkSpec resnet34() { return for_small_images("resnet34", {3, 4, 6, 3}); }

NetworkSpec resnet50() {
  Writer writer(false);
  writer.add("stem.conv", writer.convolution(64, 7, 2));
  writer.add("stem.norm", BatchNormSpec{.relu = true});
  writer.add("stem.pool", Pool2dSpec{.pooling = Pooling::max, .kernel = 3, .stride = 2, .padding = 1});
  add_stages(writer, {.blocks = {3, 4, 6, 3}, .add_block = add_bottleneck, .widens_in_the_first = true});
  return {"resnet50", Initializer::kaiming, std::move(writer).take()};
}

}  // namespace tutti
