// Every pass of random convolutions in guarded memory (tests/support/guarded_memory.cpp),
// in comparison with the naive loops. A library that writes outside of its memory may also hang or crash later, so
// processes of their own compute the shapes, and the test reports the shape at which one ended.

#include "tutti/base/bf16.hpp"
#include "tutti/base/error.hpp"

#include "backend/comparison.hpp"
#include "backend/cpu/format.hpp"
#include "backend/single_layer.hpp"
#include "reference/conv2d.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace tutti::testing_support {
namespace {

// The environment sets the number of shapes.
int shapes() {
  const char* const text = std::getenv("TUTTI_SHAPES");
  return text == nullptr ? 40 : std::atoi(text);
}

constexpr std::array kOrders{cpu::ChannelOrder::plain, cpu::ChannelOrder::channels_last, cpu::ChannelOrder::blocks};

std::string_view name_of(cpu::ChannelOrder order) {
  return std::array<std::string_view, 3>{"nchw", "nhwc", "nChw16c"}.at(static_cast<std::size_t>(order));
}

struct ConvolutionCase {
  Precision precision;
  int threads;
  cpu::ChannelOrder order;
  std::int64_t batch;
  Shape sample;
  Conv2dSpec spec;

  Shape input() const { return sample.batch_of(batch); }
  ActivationSpec activation() const {
    const auto type = precision == Precision::fp32 ? ElementType::f32 : ElementType::bf16;
    return cpu::activation_of({input(), type, order});
  }
  std::string text() const {
    return fmt::format("{} of {} in {}: {}, kernel {}, stride {}, padding {}, dilation {}, groups {}, bias {}, relu {}",
                       input().text(), precision == Precision::fp32 ? "fp32" : "bf16", name_of(order), spec.channels,
                       spec.kernel, spec.stride, spec.padding, spec.dilation, spec.groups, spec.bias, spec.relu);
  }
};

// Every fourth shape is a strided 1x1 convolution of few channels.
ConvolutionCase random_case(Precision precision, int number) {
  RandomSequence random(1, {.item = static_cast<std::uint32_t>(number), .purpose = random_purpose("a convolution")});
  ConvolutionCase made{.precision = precision,
                       .threads = random.between(1, 2),
                       .order = kOrders[random.below(kOrders.size())],
                       .batch = random.between(1, 4),
                       .sample = {},
                       .spec = {.bias = random.below(2) == 0, .relu = random.below(2) == 0}};
  if (number % 4 == 0) {
    made.sample = {random.between(1, 20), random.between(20, 30), random.between(12, 30)};
    made.spec.channels = random.between(2, 32);
    made.spec.kernel = 1;
    made.spec.stride = random.between(2, 4);
    return made;
  }
  made.spec.groups = random.below(4) == 0 ? random.between(2, 8) : 1;
  made.spec.dilation = random.below(4) == 0 ? random.between(2, 3) : 1;
  const auto per_group = [&] { return random.between(1, static_cast<std::int32_t>(40 / made.spec.groups)); };
  made.spec.channels = made.spec.groups * per_group();
  made.spec.kernel = random.between(1, 7);
  made.spec.stride = random.between(1, 4);
  made.spec.padding = random.between(0, static_cast<std::int32_t>(made.spec.kernel) - 1);
  const auto extent = [&] {
    const std::int64_t least = (made.spec.kernel - 1) * made.spec.dilation + 1 - 2 * made.spec.padding;
    return std::max<std::int64_t>(least, random.between(1, 24));
  };
  const std::int64_t channels = made.spec.groups * per_group();
  made.sample = {channels, extent(), extent()};
  return made;
}

// The first difference from the naive loops, or nothing.
std::string compute(const ConvolutionCase& what) {
  Device device(make_cpu_backend(what.precision), what.threads);
  // Each of a weight's gradient is a sum over the output positions of all samples, no more than padded pixels.
  const auto pixels = static_cast<double>(what.batch * (what.sample[1] + 2 * what.spec.padding) *
                                          (what.sample[2] + 2 * what.spec.padding));
  const double tolerance = what.precision == Precision::fp32 ? 1e-5 + 6e-8 * std::sqrt(pixels) : 2e-2;
  const NetworkWeights weights(device, {"Guarded", what.batch, what.sample, {what.spec}});
  SingleLayer layer(device, what.spec, {.input = what.activation()}, weights);
  std::string differences;
  const auto compare = [&](const char* name, const std::vector<float>& got, const reference::Array& expected) {
    const auto result = close(got, expected.values, tolerance);
    if (!result) differences += fmt::format("{}: {}; ", name, result.message());
  };
  const auto output = layer.forward(random_floats(what.input().elements(), "input"), {});
  const reference::Array input(what.input(), layer.input());
  std::vector<reference::Array> parameters;
  for (std::size_t i = 0; i < weights.values(0).size(); ++i) {
    parameters.emplace_back(weights.tensors(0)[i].shape, weights.values(0)[i]);
  }
  compare("output", output, reference::forward(what.spec, input, parameters));

  const Shape shape = layer.output().shape;
  std::vector<float> gradient = random_floats(shape.elements(), "gradient");
  if (what.precision == Precision::bf16) {  // as the layer gets it: in a sum near zero, its rounding is large
    for (float& value : gradient) value = to_float(to_bf16(value));
  }
  const auto gradients = layer.backward({gradient});
  const auto expected = reference::backward(
      what.spec,
      {.input = input, .output = reference::Array(shape, output), .output_gradient = reference::Array(shape, gradient)},
      parameters);
  compare("input gradient", gradients.input, expected.input);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    compare(i == 0 ? "weight gradient" : "bias gradient", gradients.parameters[i], expected.parameters[i]);
  }
  if (!layer.wrote_nothing_else()) differences += "something else was written; ";
  return differences;
}

// What a child shares with the test.
struct Progress {
  int number;
  std::array<char, 2000> differences;
};

class Shared {
 public:
  Shared()
      : memory_(static_cast<Progress*>(
            ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { ::munmap(memory_, sizeof(Progress)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  Progress* operator->() const { return memory_; }

 private:
  Progress* memory_;
};

// Computes the shapes first .. last - 1. Returns the status of the process, which ends at the first that is wrong.
int compute_in_child(Precision precision, int first, int last, const Shared& progress) {
  constexpr unsigned kSecondsEach = 60;
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr rlimit kNoCore{0, 0};
    ::setrlimit(RLIMIT_CORE, &kNoCore);
    for (int number = first; number < last; ++number) {
      progress->number = number;
      ::alarm(kSecondsEach);
      std::string differences;
      try {
        differences = compute(random_case(precision, number));
      } catch (const std::exception& error) {
        differences = error.what();
      }
      if (differences.empty()) continue;
      differences.copy(progress->differences.data(), progress->differences.size() - 1);
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

std::string reason_of(int status, const Shared& progress) {
  if (WIFEXITED(status)) return progress->differences.data();
  if (WTERMSIG(status) == SIGALRM) return "it hangs";
  return fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
}

void expect_right_passes(Precision precision) {
  constexpr int kEach = 40;
  int next = 0;
  while (next < shapes()) {
    const Shared progress;
    const int last = std::min(shapes(), next + kEach);
    const int status = compute_in_child(precision, next, last, progress);
    if (status == 0) {
      next = last;
      continue;
    }
    ADD_FAILURE() << "shape " << progress->number << ", " << random_case(precision, progress->number).text() << ": "
                  << reason_of(status, progress);
    next = progress->number + 1;
  }
}

TEST(GuardedConvolutions, ComputeRightValuesWithinTheirMemory) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) expect_right_passes(precision);
}

}  // namespace
}  // namespace tutti::testing_support
