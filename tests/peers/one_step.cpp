// One training step of a network on a batch from a file, for comparison with PyTorch's:
//
//   one_step IN.h5 OUT.h5
//
// IN: texts /model, that of its model file, and /precision; /classes i32; /images f32 N, C, H, W; /labels i32 N;
// /parameters/... and /statistics/... f32. OUT: /loss and /evaluation_loss f64; /gradients/... f32; /statistics/...
// f32, the running ones after the step, with which the evaluation runs; the weights stay as they came.

#include "tutti/base/error.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/nn/network_instance.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/atomic_file.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti {
namespace {

template <typename T>
std::vector<T> read_array(const ArrayFile& file, const std::string& name) {
  const Shape shape = file.shape(name);
  std::vector<T> values(static_cast<std::size_t>(shape.elements()));
  file.read(name, shape, std::span<T>(values));
  return values;
}

Network network_of(const ArrayFile& file) {
  return Network(parse_model(file.read_text("/model"), "/model"), file.shape("/images").without_first(),
                 read_array<std::int32_t>(file, "/classes").front());
}

std::unique_ptr<Backend> backend_of(const ArrayFile& file) {
  auto backend = make_cpu_backend(value_named<Precision>(file.read_text("/precision")).value());
  backend->enter_compute_thread(1);
  return backend;
}

class OneStep {
 public:
  explicit OneStep(const ArrayFile& file)
      : network_(network_of(file)),
        backend_(backend_of(file)),
        stream_(backend_->make_stream()),
        values_(block()),
        gradients_(block()),
        weights_(network_, *backend_, tensor(values_)),
        instance_(network_, weights_, *backend_),
        images_(read_array<float>(file, "/images")),
        labels_(read_array<std::int32_t>(file, "/labels")) {
    for (const LayerMode mode : {LayerMode::training, LayerMode::evaluation}) instance_.plan(samples(), mode);
    for (const ParameterSlice& slice : layout().trained()) fill("/parameters/", slice, file);
    for (const ParameterSlice& slice : layout().statistics()) fill("/statistics/", slice, file);
  }

  void run(MemoryFileWriter& results) {
    const double loss = pass(LayerMode::training);
    instance_.backward(*stream_, tensor(gradients_), 1, [](std::int64_t) {});
    update_statistics(*backend_, *stream_, layout(), {tensor(values_), tensor(gradients_)});
    const double evaluation_loss = pass(LayerMode::evaluation);
    results.add("/loss", Shape{}, std::array{loss});
    results.add("/evaluation_loss", Shape{}, std::array{evaluation_loss});
    write(results, "/gradients/", gradients_, layout().trained());
    write(results, "/statistics/", values_, layout().statistics());
  }

 private:
  const ParameterLayout& layout() const { return network_.layout(); }
  std::int64_t samples() const { return static_cast<std::int64_t>(labels_.size()); }
  Buffer block() { return backend_->allocate(layout().block_bytes()); }
  Tensor tensor(const Buffer& block) const { return block.view(Shape{layout().block_elements()}, ElementType::f32); }

  void fill(const std::string& group, const ParameterSlice& slice, const ArrayFile& file) {
    std::vector<float> values(static_cast<std::size_t>(slice.elements()));
    file.read(group + slice.name, slice.shape, std::span<float>(values));
    backend_->copy(*stream_, slice_of(tensor(values_), slice), {values.data(), slice.shape});
    stream_->synchronize();
  }

  // Forward and loss with the values as they are; the mean loss of the batch.
  double pass(LayerMode mode) {
    const Buffer sums = backend_->allocate(LossSums::kFields * sizeof(std::int64_t));
    const Tensor on_device = sums.view(Shape{LossSums::kFields}, ElementType::i64);
    weights_.refresh(*stream_);
    instance_.forward(*stream_, {images_.data(), network_.sample().batch_of(samples())}, mode);
    instance_.loss(*stream_, {labels_.data(), Shape{samples()}, ElementType::i32}, 1.0f / static_cast<float>(samples()),
                   on_device);
    std::array<std::int64_t, LossSums::kFields> fields{};
    backend_->copy(*stream_, {fields.data(), on_device.shape, ElementType::i64}, on_device);
    stream_->synchronize();
    return LossSums{.loss_quanta = fields[0], .samples = fields[2]}.mean_loss();
  }

  void write(MemoryFileWriter& results, const std::string& group, const Buffer& from,
             std::span<const ParameterSlice> slices) {
    const auto values = read_slices(*backend_, *stream_, tensor(from), slices);
    for (std::size_t i = 0; i < slices.size(); ++i) {
      results.add(group + slices[i].name, slices[i].shape, std::span<const float>(values[i]));
    }
  }

  Network network_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  Buffer values_;     // weights and running statistics
  Buffer gradients_;  // and this batch's statistics
  NetworkWeights weights_;
  NetworkInstance instance_;
  std::vector<float> images_;
  std::vector<std::int32_t> labels_;
};

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: one_step IN.h5 OUT.h5\n", stderr);
    return 64;
  }
  try {
    tutti::MemoryFileWriter results;
    tutti::OneStep(tutti::ArrayFile(argv[1])).run(results);
    tutti::write_atomically(argv[2], results.finish());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "one_step: %s\n", error.what());
    return 1;
  }
}
