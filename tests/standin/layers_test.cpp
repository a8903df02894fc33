// Layers on GPUs of other sizes and ages, and beside work that waits for other ranks.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/backend/cuda_stream.hpp"

#include "backend/cuda/format.hpp"
#include "backend/network_weights.hpp"
#include "standin/control.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

namespace tutti::testing_support {
namespace {

// An environment variable of the stand-in.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Setting() { ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

std::unique_ptr<Backend> make_cuda() { return tutti_cuda_library().make_backend({.search_plans = false}); }

std::size_t used_bytes() {
  std::size_t free = 0;
  std::size_t all = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &all), cudaSuccess);
  return all - free;
}

TEST(LayersOnGpus, HaveAsManyPartialSumsAsTheGpuRunsBlocks) {
  constexpr std::int64_t kChannels = 8;
  const auto bytes_on = [&](const char* multiprocessors) {
    const Setting size("TUTTI_STANDIN_MULTIPROCESSORS", multiprocessors);
    Device device(make_cuda());
    const NetworkCase network{"Norm", 64, {kChannels, 16, 16}, {BatchNormSpec{}}};
    const NetworkWeights weights(device, network);
    const std::size_t before = used_bytes();
    const auto layer = device.backend().make_layer(
        BatchNormSpec{},
        {.input = cuda::activation_of({64, kChannels, 16, 16}, ElementType::f32), .weights = weights.prepared(0)});
    return used_bytes() - before;
  };
  // A chunk has 256 of the 16,384 rows or a multiple of that, and 4 blocks run on a multiprocessor.
  constexpr std::size_t kBytesPerChunk = 2 * kChannels * sizeof(float);
  EXPECT_EQ(bytes_on("2") - bytes_on("1"), (8 - 4) * kBytesPerChunk);
  EXPECT_EQ(bytes_on("132") - bytes_on("1"), (64 - 4) * kBytesPerChunk);
}

// Their algorithms were chosen at the start.
TEST(LayersOnGpus, AreMadeWhileOtherStreamsWaitForOtherRanks) {
  Device device(make_cuda());
  const NetworkCase network{"Linear", 4, {40}, {LinearSpec{.units = 8}}};
  const NetworkWeights weights(device, network);  // refreshed
  const auto make_layer = [&] {
    return device.backend().make_layer(LinearSpec{.units = 8}, {.input = cuda::activation_of({4, 40}, ElementType::f32),
                                                                .weights = weights.prepared(0)});
  };
  const auto first = make_layer();
  const auto collective = make_cuda_stream(0, CudaPriority::urgent);
  std::int64_t asked = 0;
  bool others_came = false;
  bool is_done = false;
  const auto can_run = [&] { return others_came || ++asked > 100'000; };
  ASSERT_EQ(standin::enqueue(
                static_cast<cudaStream_t>(collective->native()), [&] { is_done = true; }, can_run),
            cudaSuccess);
  const auto layer = make_layer();
  EXPECT_FALSE(is_done);
  others_came = true;
  collective->synchronize();
  EXPECT_TRUE(is_done);
}

TEST(LayersOnGpus, NeedAGpuThatIsNotTooOld) {
  const Setting turing("TUTTI_STANDIN_MAJOR", "7");
  EXPECT_THAT(thrown_by([] { make_cuda(); }),
              reports(ErrorSource::usage,
                      "Stand-in for a GPU (GPU 0) has compute capability 7.0, and 8.0 (A100) "
                      "or newer is needed"));
}

}  // namespace
}  // namespace tutti::testing_support
