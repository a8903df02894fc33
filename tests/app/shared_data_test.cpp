#include "tutti/base/error.hpp"

#include "assemble.hpp"
#include "support/mpi_world.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <string>

namespace tutti {
namespace {

// What the kernel reports of this process, in KiB, behind that word of a file.
std::int64_t reported_bytes(const std::string& path, const std::string& item) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::int64_t kib = 0;
    if (word == item && file >> kib) return kib * 1024;
  }
  throw Error(ErrorSource::io, path + " has no " + item);
}

// The proportional set size of this process: a page that four processes have mapped counts as a quarter of one.
std::int64_t proportional_bytes() { return reported_bytes("/proc/self/smaps_rollup", "Pss:"); }

std::int64_t sum_over_ranks(std::int64_t mine) {
  std::int64_t sum = 0;
  for (const std::string& theirs : all_gather_text(test_world(), std::to_string(mine))) sum += std::stoll(theirs);
  return sum;
}

struct Footprint {
  std::int64_t all_ranks = 0;
  std::int64_t data = 0;
};

// The memory of all ranks together once each has read every pixel.
Footprint footprint_of(const std::string& data) {
  RunConfig config;
  config.data.train = data;
  config.model = "linear";
  const Assembly assembly = assemble(test_world(), config, Log(test_world().rank(), "", true));
  std::int64_t brightness = 0;
  Footprint footprint;
  for (const Dataset* set : {assembly.data.train.get(), assembly.data.test.get()}) {
    footprint.data += static_cast<std::int64_t>(set->resident_bytes());
    SampleBatch batch;
    for (std::int64_t sample = 0; sample < set->info().samples; ++sample) {
      set->read(std::span(&sample, 1), batch);
      const ImageView& image = batch.images[0];
      brightness = std::accumulate(image.pixels, image.pixels + image.shape.elements(), brightness);
    }
  }
  EXPECT_GT(brightness, 0);
  test_world().barrier();
  footprint.all_ranks = sum_over_ranks(proportional_bytes());
  test_world().barrier();
  return footprint;
}

TEST(SharedData, IsInMemoryOncePerHost) {
  ASSERT_EQ(test_world().local_size(), test_world().size());
  const Footprint tiny = footprint_of("synthetic:64x3x32x32:10");
  const Footprint large = footprint_of("synthetic:30000x3x32x32:10");
  ASSERT_GT(large.data, 100'000'000);
  const double times = static_cast<double>(large.all_ranks - tiny.all_ranks) / static_cast<double>(large.data);
  if (test_world().rank() == 0) fmt::print("{} bytes of data are in memory {:.3f} times\n", large.data, times);
  EXPECT_GT(times, 0.5);  // starts of programs that map the same libraries lower it
  EXPECT_LT(times, 1.6);
}

RunData open(const std::string& data) {
  RunConfig config;
  config.data.train = data;
  return open_run_data(test_world(), all_gather_text(test_world(), test_world().host()), config);
}

// The largest resident set of this process so far, which writing 5 to clear_refs resets.
std::int64_t peak_bytes() { return reported_bytes("/proc/self/status", "VmHWM:"); }

TEST(SharedData, IsLoadedWithoutACopy) {
  std::ofstream("/proc/self/clear_refs") << 5;
  const std::int64_t before = peak_bytes();
  const RunData data = open("synthetic:30000x3x32x32:10");
  const double times = static_cast<double>(peak_bytes() - before) / static_cast<double>(data.block.bytes());
  if (test_world().rank() == 0) fmt::print("loading takes {:.3f} times the memory of the data\n", times);
  EXPECT_LT(times, 1.3);
}

TEST(SharedData, HasTheSameDigestOnEveryRank) {
  const std::string name = "synthetic:100x1x8x8:3";
  EXPECT_EQ(open(name).data_digest, open_data({.train = name}).pair.train->digest());
}

TEST(SharedData, IsRefusedToRanksOfOneHostThatRequestDifferentData) {
  if (test_world().size() == 1) return;
  const int last = test_world().size() - 1;
  const Error error =
      thrown_by([&] { open(test_world().rank() == last ? "synthetic:101x1x8x8:3" : "synthetic:100x1x8x8:3"); });
  EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
  EXPECT_TRUE(std::string(error.what()).starts_with(fmt::format("rank {} requests other data than rank 0", last)))
      << error.what();
}

TEST(SharedData, ThrowsTheErrorOfTheLoadingRankOnAllRanks) {
  const Error error = thrown_by([] { open("no-such-data"); });
  EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
  EXPECT_EQ(error.source(), ErrorSource::io);
}

}  // namespace
}  // namespace tutti
