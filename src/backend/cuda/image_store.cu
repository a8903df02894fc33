// A data set's images in GPU memory, and the kernel that makes batches of them.

#include "tutti/backend/image_store.hpp"

#include "backend/cuda/backend.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"
#include "kernel.cuh"

#include <algorithm>

namespace tutti::cuda {
namespace {

constexpr int kWidestImage = 4096;  // wider ones do not fit a kernel's shared memory

// AxisTables of one batch.
struct AxisWork {
  const std::int32_t* taps;
  const std::int32_t* first;
  const float* weights;
  int most_taps;
  int outputs;
};

struct GatherWork {
  const std::uint8_t* pixels;
  const std::int32_t* labels;
  int channels;
  int height;
  int width;
  const std::int32_t* samples;
  AxisWork rows;
  AxisWork columns;
  const float* means;
  const float* deviations;
  float* images;
  std::int32_t* image_labels;
};

constexpr int kThreads = 256;

// The taps of one image along one axis.
struct Taps {
  const std::int32_t* first;  // by output
  const float* weights;       // by tap, then output
  int count;
  int outputs;

  __device__ Taps(const AxisWork& work, std::int64_t image)
      : first(work.first + image * work.outputs),
        weights(work.weights + image * work.most_taps * work.outputs),
        count(work.taps[image]),
        outputs(work.outputs) {}

  // Adds in the order of the host's writer, groups of four and then singles, without FMA, for the same bits.
  template <class Input>
  __device__ float sum(int output, const Input* inputs, int stride) const {
    const Input* input = inputs + static_cast<std::int64_t>(first[output]) * stride;
    const float* weight = weights + output;
    const auto product = [&](int tap) {
      return __fmul_rn(weight[static_cast<std::int64_t>(tap) * outputs],
                       static_cast<float>(input[static_cast<std::int64_t>(tap) * stride]));
    };
    float sum = 0;
    int tap = 0;
    for (; tap + 4 <= count; tap += 4) {
      const float pair = __fadd_rn(product(tap), product(tap + 1));
      sum = __fadd_rn(sum, __fadd_rn(__fadd_rn(pair, product(tap + 2)), product(tap + 3)));
    }
    for (; tap < count; ++tap) sum = __fadd_rn(sum, product(tap));
    return sum;
  }
};

// A block makes some output rows of one channel of one image: it resamples the rows, then the columns of the result.
__global__ void gather_images(const GatherWork work, const int rows_at_once, const int tiles) {
  __shared__ float resampled[kWidestImage];
  const std::int64_t image = blockIdx.x / static_cast<unsigned>(tiles);
  const int tile = static_cast<int>(blockIdx.x - static_cast<unsigned>(image) * static_cast<unsigned>(tiles));
  const int channel = static_cast<int>(blockIdx.y);
  const Taps rows(work.rows, image);
  const Taps columns(work.columns, image);
  const int top = tile * rows_at_once;
  const int count = rows.outputs - top < rows_at_once ? rows.outputs - top : rows_at_once;
  const std::int64_t sample = work.samples[image];
  const std::uint8_t* const plane =
      work.pixels + (sample * work.channels + channel) * (static_cast<std::int64_t>(work.height) * work.width);
  for (int i = static_cast<int>(threadIdx.x); i < count * work.width; i += kThreads) {
    const int y = i / work.width;
    resampled[i] = rows.sum(top + y, plane + (i - y * work.width), work.width);
  }
  __syncthreads();
  const float mean = work.means[channel];
  const float deviation = work.deviations[channel];
  float* const values = work.images + ((image * work.channels + channel) * rows.outputs + top) * columns.outputs;
  for (int i = static_cast<int>(threadIdx.x); i < count * columns.outputs; i += kThreads) {
    const int y = i / columns.outputs;
    const float pixel = columns.sum(i - y * columns.outputs, resampled + y * work.width, 1);
    values[i] = __fdiv_rn(__fsub_rn(__fdiv_rn(pixel, 255.0f), mean), deviation);
  }
  if (tile == 0 && channel == 0 && threadIdx.x == 0) work.image_labels[image] = work.labels[sample];
}

AxisWork axis_of(const AxisTables& tables, const Shape& outputs) {
  const Shape& weights = tables.weights.shape;
  require_shape("taps", tables.taps, {outputs[0]});
  require_shape("first inputs", tables.first, outputs);
  require_shape("weights", tables.weights, {outputs[0], weights.ndim() == 3 ? weights[1] : 0, outputs[1]});
  return {.taps = device_i32(tables.taps),
          .first = device_i32(tables.first),
          .weights = device_f32(tables.weights),
          .most_taps = static_cast<int>(weights[1]),
          .outputs = static_cast<int>(outputs[1])};
}

class CudaImageStore final : public ImageStore {
 public:
  CudaImageStore(int device, const ImageSet& images)
      : image_(images.image),
        pixels_(allocate_cuda(device, images.pixels.size_bytes(), CudaMemory::images)),
        labels_(allocate_cuda(device, images.labels.size_bytes(), CudaMemory::images)) {
    const auto stream = make_cuda_stream(device);
    fill(*stream, pixels_, images.pixels.data());
    fill(*stream, labels_, images.labels.data());
    stream->synchronize();
  }

  void gather(Stream& stream, const ImageGather& request) override {
    const Shape& made = request.images.shape;
    const std::int64_t count = made[0];
    require_shape("images", request.images, {count, image_[0], made[2], made[3]});
    require_shape("samples", request.samples, {count});
    require_shape("labels", request.labels, {count});
    require_shape("means", request.means, {image_[0]});
    require_shape("deviations", request.deviations, {image_[0]});
    const AxisWork rows = axis_of(request.rows, {count, made[2]});
    const GatherWork work{.pixels = static_cast<const std::uint8_t*>(pixels_.data()),
                          .labels = static_cast<const std::int32_t*>(labels_.data()),
                          .channels = static_cast<int>(image_[0]),
                          .height = static_cast<int>(image_[1]),
                          .width = static_cast<int>(image_[2]),
                          .samples = device_i32(request.samples),
                          .rows = rows,
                          .columns = axis_of(request.columns, {count, made[3]}),
                          .means = device_f32(request.means),
                          .deviations = device_f32(request.deviations),
                          .images = device_f32(request.images),
                          .image_labels = device_i32(request.labels)};
    const int rows_at_once = std::min(kWidestImage / work.width, rows.outputs);
    const int tiles = (rows.outputs + rows_at_once - 1) / rows_at_once;
    launch(gather_images, {.blocks = count * tiles, .blocks_y = work.channels, .threads = kThreads},
           native(as_cuda_stream(stream)), work, rows_at_once, tiles);
  }

 private:
  static void fill(CudaStream& stream, const Buffer& to, const void* from) {
    if (to.bytes() == 0) return;
    check(cudaMemcpyAsync(to.data(), from, to.bytes(), cudaMemcpyHostToDevice, native(stream)));
  }

  Shape image_;
  Buffer pixels_;
  Buffer labels_;
};

}  // namespace

// Null if the images need more than half of the device's free memory, or are too wide for the kernel.
std::unique_ptr<ImageStore> CudaBackend::upload_dataset(const ImageSet& images) {
  require_images(images);
  if (images.image[2] > kWidestImage) return nullptr;
  const std::size_t bytes = images.pixels.size_bytes() + images.labels.size_bytes();
  if (static_cast<std::int64_t>(bytes) > free_bytes(processor_.device) / 2) return nullptr;
  return std::make_unique<CudaImageStore>(processor_.device, images);
}

}  // namespace tutti::cuda
