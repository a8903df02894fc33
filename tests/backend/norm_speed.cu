// Times the kernels of batch norm on the shapes of resnet18, against the bytes that they move, with several kinds of
// blocks, of which the first is used:
//
//     norm_speed [--bytes-per-second 4.3e12]
//     norm_speed --check    compares their results on small shapes instead
//
// Cold: tensors that are in no cache. Hot: the same tensors again and again. In a step they are something between.

#include "norm_bench.cuh"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::cuda {
namespace {

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
