#include "backend/cuda/image_store.hpp"

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/error.hpp"

#include "backend/cuda/check.hpp"
#include "backend/cuda/device_tensor.hpp"
#include "backend/cuda/flat.hpp"
#include "backend/cuda/image_kernels.hpp"
#include "backend/cuda/native.hpp"

#include <fmt/format.h>

namespace tutti::cuda {
namespace {

void require_shape(std::string_view what, const Tensor& tensor, const Shape& shape) {
  if (tensor.shape == shape) return;
  throw Error(ErrorSource::internal,
              fmt::format("{} of a batch of held images are {}, not {}", what, tensor.shape.text(), shape.text()));
}

AxisWork axis_of(const AxisTables& tables, const Shape& outputs) {
  const Shape& weights = tables.weights.shape;
  require_shape("taps", tables.taps, {outputs[0]});
  require_shape("first inputs", tables.first, outputs);
  require_shape("weights", tables.weights, {outputs[0], weights.rank() == 3 ? weights[1] : 0, outputs[1]});
  return {.taps = device_i32(tables.taps),
          .first = device_i32(tables.first),
          .weights = device_f32(tables.weights),
          .most_taps = static_cast<int>(weights[1]),
          .outputs = static_cast<int>(outputs[1])};
}

class CudaImageStore final : public ImageStore {
 public:
  CudaImageStore(int device, const HeldImages& images)
      : image_(images.image),
        pixels_(allocate_cuda(device, images.pixels.size_bytes())),
        labels_(allocate_cuda(device, images.labels.size_bytes())) {
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
    launch_gather(native(as_cuda_stream(stream)),
                  {.pixels = static_cast<const std::uint8_t*>(pixels_.data()),
                   .labels = static_cast<const std::int32_t*>(labels_.data()),
                   .channels = static_cast<int>(image_[0]),
                   .height = static_cast<int>(image_[1]),
                   .width = static_cast<int>(image_[2]),
                   .samples = device_i32(request.samples),
                   .rows = axis_of(request.rows, {count, made[2]}),
                   .columns = axis_of(request.columns, {count, made[3]}),
                   .means = device_f32(request.means),
                   .deviations = device_f32(request.deviations),
                   .images = device_f32(request.images),
                   .image_labels = device_i32(request.labels)},
                  count);
  }

 private:
  static void fill(CudaStream& stream, const Buffer& to, const void* from) {
    const Tensor all = to.view({static_cast<std::int64_t>(to.bytes())}, ElementType::u8);
    copy(stream, all, {const_cast<void*>(from), all.shape, all.type, MemorySpace::host});
  }

  Shape image_;
  Buffer pixels_;
  Buffer labels_;
};

}  // namespace

std::unique_ptr<ImageStore> hold_images(int device, const HeldImages& images) {
  if (static_cast<std::int64_t>(images.pixels.size()) != std::ssize(images.labels) * images.image.elements()) {
    throw Error(ErrorSource::internal, fmt::format("{} pixels of {} images of {} are to be held", images.pixels.size(),
                                                   images.labels.size(), images.image.text()));
  }
  if (images.image[2] > kWidestImage) return nullptr;
  use_cuda_device(device);
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total));
  if (images.pixels.size_bytes() + images.labels.size_bytes() > free / 2) return nullptr;
  return std::make_unique<CudaImageStore>(device, images);
}

}  // namespace tutti::cuda
