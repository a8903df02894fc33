#pragma once
// Moves test data between the host and the memory of any backend.

#include "tutti/backend/backend.hpp"
#include "tutti/base/random.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace tutti::testing_support {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Values in -1 .. 1, a pure function of the name.
inline std::vector<float> random_floats(std::int64_t count, std::string_view name, double scale = 1) {
  RandomSequence random(1, {.purpose = random_purpose(name)});
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>((2 * random.uniform() - 1) * scale);
  return values;
}

// Bits, not values, so that equal NaNs are equal and zeros of different signs are not.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// One backend and one stream on it, with the calling thread entered.
class Device {
 public:
  explicit Device(std::shared_ptr<Backend> backend, int threads = 1) : backend_(std::move(backend)) {
    backend_->enter_compute_thread(threads);
    stream_ = backend_->make_stream();
  }

  Backend& backend() { return *backend_; }
  // For a device that another thread has created.
  std::shared_ptr<Backend> share() const { return backend_; }
  Stream& stream() { return *stream_; }

  template <class T>
  void upload(const Tensor& to, const std::vector<T>& values) {
    std::vector<T> source = values;
    backend_->copy(*stream_, to, {source.data(), to.shape, to.type, MemorySpace::host});
    stream_->synchronize();
  }

  template <class T>
  std::vector<T> download(const Tensor& from) {
    std::vector<T> values(static_cast<std::size_t>(from.elements()));
    backend_->copy(*stream_, {values.data(), from.shape, from.type, MemorySpace::host}, from);
    stream_->synchronize();
    return values;
  }

  Buffer buffer_of(const std::vector<float>& values) {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    Buffer buffer = backend_->allocate(values.size() * sizeof(float));
    upload(buffer.view(shape, ElementType::f32), values);
    return buffer;
  }

  // Fills the memory with NaN, so that reads of unwritten values are detected.
  void poison(const Buffer& buffer) {
    const Shape shape{static_cast<std::int64_t>(buffer.bytes())};
    upload(buffer.view(shape, ElementType::u8), std::vector<std::uint8_t>(buffer.bytes(), 0xFF));
  }

  // An activation's values in canonical order.
  std::vector<float> values_of(const ActivationSpec& activation, const Buffer& buffer) {
    return values_of(activation, buffer.data());
  }
  std::vector<float> values_of(const ActivationSpec& activation, const void* values) {
    const Buffer plain = backend_->allocate(static_cast<std::size_t>(activation.shape.elements()) * sizeof(float));
    const Tensor tensor = plain.view(activation.shape, ElementType::f32);
    backend_->to_plain(*stream_, activation, values, tensor);
    return download<float>(tensor);
  }

  void set_values(const ActivationSpec& activation, const Buffer& buffer, const std::vector<float>& values) {
    const Buffer plain = buffer_of(values);
    if (activation.bytes == plain.bytes() && same_bits(values_of(activation, plain), values)) {
      backend_->copy(*stream_, buffer.view(activation.shape, ElementType::f32),
                     plain.view(activation.shape, ElementType::f32));
      return stream_->synchronize();
    }
    // Other layouts are the result of adding the values to zeros, which look alike in every layout.
    const LayerRequest request{
        .input = activation, .residual = backend_->plain_activation(activation.shape), .mode = LayerMode::evaluation};
    const auto addition = backend_->make_layer(AddSpec{}, request);
    const Buffer zeros = backend_->allocate(activation.bytes);
    addition->forward(*stream_, {.input = zeros.data(), .residual = plain.data(), .output = buffer.data()});
    stream_->synchronize();
  }

 private:
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace tutti::testing_support
