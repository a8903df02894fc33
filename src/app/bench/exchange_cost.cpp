#include "exchange_cost.hpp"

#include <cstdint>

namespace tutti {
namespace {

Tensor host_tensor(std::vector<float>& values) {
  return {.data = values.data(), .shape = Shape{static_cast<std::int64_t>(values.size())}};
}

}  // namespace

std::vector<float> read_gradients(Readied& run) {
  const Tensor gradients = run.trainer->gradients();
  std::vector<float> values(static_cast<std::size_t>(gradients.elements()));
  const auto stream = run.assembly.backend->make_stream();
  run.assembly.backend->copy(*stream, host_tensor(values), gradients);
  stream->synchronize();
  return values;
}

ExchangeCost measure_exchange(World& world, Readied& run, const TimedSteps& steps, std::vector<float>& gradients) {
  Backend& backend = *run.assembly.backend;
  Communicator& communicator = *run.assembly.communicator;
  const Tensor values = host_tensor(gradients);
  const Buffer memory = backend.allocate(values.bytes());
  const Tensor on_device = memory.view(values.shape, values.type);
  const auto stream = backend.make_stream();
  backend.copy(*stream, on_device, values);
  stream->synchronize();
  const auto step = [&] { run.trainer->step_with(on_device); };
  time_steps(world, *run.trainer, {.warmup = steps.warmup, .timed = 0}, step);
  const std::uint64_t sent_before = communicator.bytes_sent();
  const auto seconds = time_steps(world, *run.trainer, steps_for(backend, {.warmup = 0, .timed = steps.timed}), step);
  const auto sent = static_cast<double>(communicator.bytes_sent() - sent_before) / static_cast<double>(steps.timed);
  const auto greatest = greatest_of_ranks(world, {sent, static_cast<double>(run.trainer->exchange_bytes()),
                                                  static_cast<double>(run.trainer->optimizer_bytes())});
  return {.step = quartiles_of(seconds),
          .sent_bytes = greatest[0],
          .exchange_bytes = greatest[1],
          .optimizer_bytes = greatest[2]};
}

}  // namespace tutti
