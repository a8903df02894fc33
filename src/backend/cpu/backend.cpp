#include "backend/cpu/backend.hpp"

#include "tutti/base/denormals.hpp"
#include "tutti/base/error.hpp"

#include "backend/cpu/layers.hpp"
#include "backend/cpu/processor.hpp"
#include "backend/cpu/staged.hpp"
#include "backend/cpu/weights.hpp"
#include "backend/requests.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <exception>
#include <latch>
#include <thread>
#include <vector>

namespace tutti::cpu {
namespace {

ElementType compute_type(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return ElementType::f32;
    case Precision::bf16:
      return ElementType::bf16;
    case Precision::tf32:
      break;
  }
  throw Error(ErrorSource::usage, "--precision tf32 needs GPUs, and this run is on CPUs: give fp32 or bf16");
}

// libgomp ends the process with status 1 if it cannot start a thread. So this starts the same number before it, and
// reports an error.
void require_startable(int threads) {
  std::latch all_started(1);
  std::vector<std::jthread> others;
  try {
    for (int i = 1; i < threads; ++i) others.emplace_back([&] { all_started.wait(); });
  } catch (const std::exception& error) {  // no thread, or no memory for one
    all_started.count_down();
    throw Error(
        ErrorSource::input,
        fmt::format("cannot start {} threads, only {}: {}; lower --threads, or raise the limits of memory and of "
                    "processes (ulimit -v, ulimit -u)",
                    threads, others.size() + 1, error.what()));
  }
  all_started.count_down();
}

}  // namespace

CpuBackend::CpuBackend(Precision precision)
    : description_("cpu: " + instruction_set()), type_(compute_type(precision)) {}

void CpuBackend::enter_compute_thread(int threads) {
  if (threads < 1) {
    throw Error(ErrorSource::usage, fmt::format("a compute thread needs at least 1 thread, not {}", threads));
  }
  require_startable(threads);
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
  // A library built with -ffast-math may have changed this for the thread that loaded it and for those that it started.
  set_denormal_mode(0);
}

std::unique_ptr<Stream> CpuBackend::make_stream() { return std::make_unique<CpuStream>(); }

ActivationSpec CpuBackend::plain_activation(const Shape& shape) { return activation_of(plain(shape)); }

void CpuBackend::to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) {
  require_equal_sizes("converting an activation between", activation.shape.elements(), std::ssize(host_f32(to)));
  const Layout target = plain(activation.shape);
  convert_activation(cpu_stream(stream), {layout_of(activation), const_cast<void*>(from)}, {target, to.data});
}

std::unique_ptr<LayerWeights> CpuBackend::make_weights(const LayerSpec& spec, std::span<const Tensor> values) {
  return std::make_unique<CpuWeights>(spec, values);
}

std::unique_ptr<Layer> CpuBackend::make_layer(const LayerSpec& spec, const LayerRequest& request) {
  require_samples(spec, request);
  return std::visit([&](const auto& layer) { return make(type_, layer, request); }, spec);
}

std::unique_ptr<LossLayer> CpuBackend::make_softmax_loss(const ActivationSpec& logits, const LossOptions& options) {
  return cpu::make_softmax_loss(logits, options);
}

}  // namespace tutti::cpu

namespace tutti {

std::unique_ptr<Backend> make_cpu_backend(Precision precision) { return std::make_unique<cpu::CpuBackend>(precision); }

}  // namespace tutti
