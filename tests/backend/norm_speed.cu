// Times the kernels of batch norm on the shapes of resnet18, against the bytes that they move, with several kinds of
// blocks, of which the first is used:
//
//     norm_speed [--bytes-per-second 4.3e12]
//     norm_speed --check    compares their results on small shapes instead
//
// Cold: tensors that are in no cache. Hot: the same tensors again and again. In a step they are something between.

#include "backend/cuda/batch_norm.cuh"
#include "backend/cuda/runtime.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::cuda {
namespace {

struct SumsKernel {
  const char* name;
  void (*sums)(NormSums);
  void (*gradient_sums[2])(NormGradientSums);  // of one gradient and of two
  int threads;
};

template <class Blocks>
SumsKernel sums_with(const char* name) {
  return {name,
          norm_sums<Bf16, Blocks>,
          {norm_gradient_sums<Bf16, 1, Blocks>, norm_gradient_sums<Bf16, 2, Blocks>},
          Blocks::kThreads};
}

std::vector<SumsKernel> sums_kernels() {
  return {sums_with<NormBlocks>("in use"), sums_with<SumBlocks<256, 2, 8>>("256x2"),
          sums_with<SumBlocks<512, 2, 4>>("512x2")};
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) { check(cudaMalloc(&data_, bytes)); }
  ~DeviceMemory() { static_cast<void>(cudaFree(data_)); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  template <class T = std::uint8_t>
  T* at(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(static_cast<std::uint8_t*>(data_) + offset);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

struct FillWork {
  Bf16* to;
  std::int64_t values;
  unsigned seed;
};

// Values from -1 to 1.
__global__ void fill(FillWork work) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < work.values; i += step) {
    unsigned bits = static_cast<unsigned>(i) * 2654435761u + work.seed * 40503u;
    bits = (bits ^ (bits >> 15)) * 2246822519u;
    bits ^= bits >> 13;
    work.to[i] = __float2bfloat16_rn(static_cast<float>(bits & 0xFFFFu) * (2.0f / 65536) - 1);
  }
}

struct Kind {
  ImageLayout layout;
  bool joins;  // adds a residual, and sums two gradients
};

// Tensors of several steps side by side, so that those of a step are in no cache when it comes again.
class Bench {
 public:
  Bench(std::size_t bytes, std::int64_t most_channels)
      : inputs_(bytes),
        residuals_(bytes),
        gradients_(bytes),
        outputs_(bytes),
        summed_(bytes),
        masks_(bytes / kPackBytes),
        partials_(std::size_t{8} * 2048 * static_cast<std::size_t>(most_channels)),
        blocks_done_(4096),
        channels_(static_cast<std::size_t>(most_channels) * 96 + 64) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check(cudaMemset(blocks_done_.at(), 0, blocks_done_.bytes()));
    check(cudaMemset(channels_.at(), 0, channels_.bytes()));
    check(cudaDeviceSynchronize());
    unsigned seed = 0;
    for (const DeviceMemory* memory : {&inputs_, &residuals_, &gradients_}) {
      launch(fill, {.blocks = 1024}, stream_,
             FillWork{memory->at<Bf16>(), static_cast<std::int64_t>(bytes / sizeof(Bf16)), ++seed});
    }
    launch(fill, {.blocks = 1024}, stream_, FillWork{masks_.at<Bf16>(), static_cast<std::int64_t>(bytes / 32), 7});
    const auto n = static_cast<std::size_t>(most_channels);
    auto* const doubles = channels_.at<double>();
    auto* const floats = channels_.at<float>(5 * n * sizeof(double));
    values_ = {doubles,    doubles + n,    doubles + 2 * n, floats,
               floats + n, floats + 2 * n, floats + 3 * n,  floats + 4 * n};
    scale_ = floats + 5 * n;
    shift_ = floats + 6 * n;
    results_ = floats + 7 * n;
    step_ = static_cast<std::int64_t>(n);
    const std::vector<float> ones(n, 1.25f);
    check(cudaMemcpy(scale_, ones.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    check(cudaStreamSynchronize(stream_));
  }
  ~Bench() { static_cast<void>(cudaStreamDestroy(stream_)); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  cudaStream_t stream() const { return stream_; }

  void sums(const SumsKernel& kernel, const Kind& kind, std::size_t slot) {
    launch(
        kernel.sums, grid_of(grid(kernel, kernel.sums, kind)), stream_,
        NormSums{
            grid(kernel, kernel.sums, kind),
            at(inputs_, kind, slot),
            partials(),
            {.channels = kind.layout.channels, .scale = scale_, .shift = shift_, .epsilon = 1e-5, .result = values_}});
  }
  void application(const Kind& kind, std::size_t slot) {
    const RowGrid rows = grid_of_values(kind);
    launch(norm_application<Bf16>, grid_of(rows), stream_,
           NormApplication{.grid = rows,
                           .input = at(inputs_, kind, slot),
                           .residual = kind.joins ? at(residuals_, kind, slot) : nullptr,
                           .output = at(outputs_, kind, slot),
                           .relu = true,
                           .positive = mask(kind, slot),
                           .channels = values_});
  }
  void gradient_sums(const SumsKernel& kernel, const Kind& kind, std::size_t slot) {
    const RowGrid rows = grid(kernel, kernel.gradient_sums[0], kind);
    launch(kernel.gradient_sums[kind.joins ? 1 : 0], grid_of(rows), stream_,
           NormGradientSums{
               .grid = rows,
               .gradients = {at(gradients_, kind, slot), kind.joins ? at(residuals_, kind, slot) : nullptr, nullptr},
               .input = at(inputs_, kind, slot),
               .positive = mask(kind, slot),
               .summed = kind.joins ? at(summed_, kind, slot) : nullptr,
               .partials = partials(),
               .channels = {.channels = kind.layout.channels,
                            .scale = scale_,
                            .epsilon = 1e-5,
                            .of = values_,
                            .scale_gradient = results_,
                            .shift_gradient = results_ + step_,
                            .mean = results_ + 2 * step_,
                            .variance = results_ + 3 * step_}});
  }
  void propagation(const Kind& kind, std::size_t slot) {
    const RowGrid rows = grid_of_values(kind);
    launch(norm_propagation<Bf16>, grid_of(rows), stream_,
           NormPropagation{.grid = rows,
                           .gradient = at(kind.joins ? summed_ : gradients_, kind, slot),
                           .positive = kind.joins ? nullptr : mask(kind, slot),
                           .input = at(inputs_, kind, slot),
                           .input_gradient = at(outputs_, kind, slot),
                           .channels = values_});
  }

  // Forgets the results of a pass.
  void clear(bool of_sums, bool is_forward) {
    check(cudaMemset(outputs_.at(), 0, outputs_.bytes()));
    const auto bytes = static_cast<std::size_t>(step_) * sizeof(float);
    if (of_sums && is_forward) check(cudaMemset(values_.rounded_mean, 0, 3 * bytes));
    if (of_sums && !is_forward) {
      check(cudaMemset(values_.slope, 0, 2 * bytes));
      check(cudaMemset(results_, 0, 4 * bytes));
      check(cudaMemset(summed_.at(), 0, summed_.bytes()));
    }
    check(cudaDeviceSynchronize());
  }

  // How many of these tensors lie side by side.
  std::size_t slots(const Kind& kind) const {
    return std::clamp<std::size_t>(inputs_.bytes() / tensor_bytes(kind), 1, 64);
  }
  static std::size_t tensor_bytes(const Kind& kind) { return static_cast<std::size_t>(kind.layout.values()) * 2; }

  // The results of the last pass: the tensors, and what is per channel.
  std::vector<float> results(const Kind& kind) const {
    std::vector<float> all;
    for (const DeviceMemory* memory : {&outputs_, &summed_}) {
      if (memory == &summed_ && !kind.joins) continue;
      std::vector<std::uint16_t> bits(tensor_bytes(kind) / 2);
      check(cudaMemcpy(bits.data(), memory->at(), tensor_bytes(kind), cudaMemcpyDeviceToHost));
      for (const std::uint16_t each : bits) {
        const std::uint32_t word = std::uint32_t{each} << 16U;
        float value = 0;
        std::memcpy(&value, &word, sizeof value);
        all.push_back(value);
      }
    }
    for (const float* from : {values_.factor, values_.offset, results_, results_ + step_, results_ + 2 * step_}) {
      std::vector<float> of_channels(static_cast<std::size_t>(kind.layout.channels));
      check(cudaMemcpy(of_channels.data(), from, of_channels.size() * sizeof(float), cudaMemcpyDeviceToHost));
      all.insert(all.end(), of_channels.begin(), of_channels.end());
    }
    return all;
  }

 private:
  template <class Kernel>
  RowGrid grid(const SumsKernel& of, Kernel kernel, const Kind& kind) const {
    return share_rows_for_sums(kind.layout, ElementType::bf16,
                               {.blocks = sum_blocks(kernel, 0, of.threads),
                                .width = RowGrid::kWidestOfSums,
                                .threads = of.threads,
                                .rows = 1});
  }
  static RowGrid grid_of_values(const Kind& kind) {
    return share_rows(kind.layout, ElementType::bf16, {.blocks = elementwise_blocks(0)});
  }
  void* at(const DeviceMemory& memory, const Kind& kind, std::size_t slot) const {
    return memory.at(slot * tensor_bytes(kind));
  }
  std::uint8_t* mask(const Kind& kind, std::size_t slot) const {
    return masks_.at(slot * tensor_bytes(kind) / kPackBytes);
  }
  PartialSums<float2> partials() const { return {partials_.at<float2>(), blocks_done_.at<unsigned>()}; }

  DeviceMemory inputs_;
  DeviceMemory residuals_;  // and second gradients
  DeviceMemory gradients_;
  DeviceMemory outputs_;
  DeviceMemory summed_;
  DeviceMemory masks_;
  DeviceMemory partials_;
  DeviceMemory blocks_done_;
  DeviceMemory channels_;
  NormChannels values_;
  float* scale_ = nullptr;
  float* shift_ = nullptr;
  float* results_ = nullptr;
  std::int64_t step_ = 0;
  cudaStream_t stream_ = nullptr;
};

// Microseconds of a call of `work`, which gets the number of the tensors to use: the best of several graphs of calls.
double microseconds(const Bench& bench, std::size_t slots, const std::function<void(std::size_t)>& work) {
  constexpr int kCalls = 40;
  check(cudaStreamBeginCapture(bench.stream(), cudaStreamCaptureModeThreadLocal));
  for (std::size_t call = 0; call < kCalls; ++call) work(call % slots);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(bench.stream(), &graph));
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  float best = INFINITY;
  for (int repetition = 0; repetition < 4; ++repetition) {
    float milliseconds = 0;
    check(cudaEventRecord(begin, bench.stream()));
    check(cudaGraphLaunch(executable, bench.stream()));
    check(cudaEventRecord(end, bench.stream()));
    check(cudaEventSynchronize(end));
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (repetition > 0) best = std::min(best, milliseconds);
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  return 1e3 * best / kCalls;
}

// One of the two passes, or of their kernels.
struct Measured {
  std::string pass;
  std::string variant;
  bool forward;
  std::function<void(const Kind&, std::size_t)> run;
  double tensors[2];  // that are read or written, with the mask's sixteenth; without and with a residual
};

std::vector<Measured> all_measured(Bench& bench) {
  static const std::vector<SumsKernel> sums = sums_kernels();
  using Slot = std::size_t;
  std::vector<Measured> all;
  for (const SumsKernel& each : sums) {
    all.push_back(
        {"sums", each.name, true, [&](const Kind& kind, Slot slot) { bench.sums(each, kind, slot); }, {1, 1}});
  }
  all.push_back({"application",
                 "in use",
                 true,
                 [&](const Kind& kind, Slot slot) { bench.application(kind, slot); },
                 {2 + 1.0 / 16, 3 + 1.0 / 16}});
  for (const SumsKernel& each : sums) {
    all.push_back({"forward",
                   each.name,
                   true,
                   [&](const Kind& kind, Slot slot) {
                     bench.sums(each, kind, slot);
                     bench.application(kind, slot);
                   },
                   {3 + 1.0 / 16, 4 + 1.0 / 16}});
  }
  for (const SumsKernel& each : sums) {
    all.push_back({"gradient sums",
                   each.name,
                   false,
                   [&](const Kind& kind, Slot slot) { bench.gradient_sums(each, kind, slot); },
                   {2 + 1.0 / 16, 4 + 1.0 / 16}});
  }
  all.push_back({"propagation",
                 "in use",
                 false,
                 [&](const Kind& kind, Slot slot) { bench.propagation(kind, slot); },
                 {3 + 1.0 / 16, 3}});
  for (const SumsKernel& each : sums) {
    all.push_back({"backward",
                   each.name,
                   false,
                   [&](const Kind& kind, Slot slot) {
                     bench.gradient_sums(each, kind, slot);
                     bench.propagation(kind, slot);
                   },
                   {5 + 2.0 / 16, 7 + 1.0 / 16}});
  }
  return all;
}

// A stage of resnet18, with the number of its norms without and with a residual, and of those with one gradient and
// with several.
struct Stage {
  std::int64_t channels;
  std::int64_t size;
  int forward[2];
  int backward[2];
};
constexpr Stage kStages[] = {
    {64, 28, {3, 2}, {2, 3}}, {128, 14, {2, 2}, {2, 2}}, {256, 7, {2, 2}, {2, 2}}, {512, 4, {2, 2}, {2, 2}}};

void measure(double bytes_per_second) {
  Bench bench(std::size_t{412} << 20U, 512);
  const std::vector<Measured> all = all_measured(bench);
  for (const std::int64_t batch : {256, 1024}) {
    std::printf("%5s %9s %-8s %-13s %-8s %9s %6s %9s\n", "batch", "shape", "residual", "pass", "variant", "us", "of",
                "hot us");
    for (const Measured& each : all) {
      double sums[3] = {};
      for (const Stage& stage : kStages) {
        for (const bool joins : {false, true}) {
          const Kind kind{{batch, stage.channels, stage.size, stage.size, stage.channels}, joins};
          const auto run = [&](std::size_t slot) { each.run(kind, slot); };
          const double bytes = each.tensors[joins ? 1 : 0] * static_cast<double>(Bench::tensor_bytes(kind));
          const double of_bytes = 1e6 * bytes / bytes_per_second;
          const double cold = microseconds(bench, bench.slots(kind), run);
          const double hot = microseconds(bench, 1, run);
          const std::string shape = std::to_string(stage.channels) + "x" + std::to_string(stage.size);
          std::printf("%5d %9s %-8s %-13s %-8s %9.2f %6.2f %9.2f\n", static_cast<int>(batch), shape.c_str(),
                      joins ? "yes" : "no", each.pass.c_str(), each.variant.c_str(), cold, of_bytes / cold, hot);
          const double count = (each.forward ? stage.forward : stage.backward)[joins ? 1 : 0];
          sums[0] += count * cold;
          sums[1] += count * of_bytes;
          sums[2] += count * hot;
        }
      }
      std::printf("%5d %9s %-8s %-13s %-8s %9.2f %6.2f %9.2f\n", static_cast<int>(batch), "all 17", "",
                  each.pass.c_str(), each.variant.c_str(), sums[0], sums[1] / sums[0], sums[2]);
    }
  }
}

// Whether all kinds of blocks give what the first does.
int compare() {
  Bench bench(std::size_t{1} << 20U, 512);
  const std::vector<Measured> all = all_measured(bench);
  int differing = 0;
  int compared = 0;
  for (const auto& [channels, samples, height, width] : {std::array<std::int64_t, 4>{64, 3, 9, 7},
                                                         {8, 1, 1, 1},
                                                         {24, 5, 11, 3},
                                                         {72, 2, 5, 5},
                                                         {512, 4, 4, 4},
                                                         {16, 2, 40, 31}}) {
    for (const bool joins : {false, true}) {
      const Kind kind{{samples, channels, height, width, channels}, joins};
      std::string pass;
      std::vector<float> expected;
      for (const Measured& each : all) {
        bench.clear(each.pass != "application" && each.pass != "propagation", each.forward);
        each.run(kind, 0);
        check(cudaStreamSynchronize(bench.stream()));
        const std::vector<float> found = bench.results(kind);
        ++compared;
        if (pass != each.pass) expected = found;
        pass = each.pass;
        float worst = 0;
        for (std::size_t i = 0; i < found.size(); ++i) {
          const float apart = std::fabs(found[i] - expected[i]) / (1 + std::fabs(expected[i]));
          worst = std::isfinite(apart) ? std::max(worst, apart) : INFINITY;
        }
        // bf16 has 8 bits, of which the last may be rounded differently.
        if (worst < 0.01f) continue;
        ++differing;
        std::printf("%d channels, %d rows: %s by %s: differs by %g\n", static_cast<int>(channels),
                    static_cast<int>(kind.layout.rows()), each.pass.c_str(), each.variant.c_str(), worst);
      }
    }
  }
  std::printf("%d of %d results differ\n", differing, compared);
  return differing == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti::cuda

int main(int count, char** arguments) {
  const std::vector<std::string_view> given(arguments + 1, arguments + count);
  if (!given.empty() && given[0] == "--check") return tutti::cuda::compare();
  const bool has_rate = given.size() == 2 && given[0] == "--bytes-per-second";
  if (!given.empty() && !has_rate) {
    std::fprintf(stderr, "norm_speed [--check | --bytes-per-second RATE]\n");
    return 64;
  }
  tutti::cuda::measure(has_rate ? std::stod(std::string(given[1])) : 4.3e12);
  return 0;
}
