// A custom network and data set: mpirun -np 4 ./stripes --parts 4, with all options of `trainer`.
#include "tutti/app/program.hpp"
#include "tutti/base/random.hpp"

using namespace tutti;

constexpr int kSide = 12;

// Images of noise with one bright horizontal or vertical line.
class Stripes : public Dataset {
 public:
  Stripes(std::uint64_t seed, std::int64_t samples)
      : info_{.name = "stripes", .image = {1, kSide, kSide}, .classes = 2, .samples = samples}, seed_(seed) {}

  const DatasetInfo& info() const override { return info_; }
  std::size_t resident_bytes() const override { return 0; }  // images are drawn when they are read
  std::uint64_t digest() const override { return hash64("stripes") + seed_; }

  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    batch = {};
    for (const std::int64_t sample : samples) {
      RandomSequence random(seed_, {.item = static_cast<std::uint32_t>(sample)});
      const auto upright = static_cast<std::int32_t>(random.below(2)), place = random.between(0, kSide - 1);
      std::vector<std::uint8_t> pixels(kSide * kSide);
      for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random.below(200));
      for (int k = 0; k < kSide; ++k) pixels[upright ? k * kSide + place : place * kSide + k] = 230;
      batch.images.push_back({batch.buffers.emplace_back(pixels).data(), info_.image});
      batch.labels.push_back(upright);
    }
  }

 private:
  DatasetInfo info_;
  std::uint64_t seed_;
};

int main(int argc, char** argv) {
  const NetworkSpec network{.name = "stripes-net",
                            .layers = {{"conv1", Conv2dSpec{.channels = 8, .kernel = 3, .relu = true}},
                                       {"pool1", Pool2dSpec{.kernel = 2, .stride = 2}},
                                       {"head", LinearSpec{.units = kUnitsFromClasses}}}};
  const auto open = [] { return DataPair{std::make_unique<Stripes>(1, 4096), std::make_unique<Stripes>(2, 1024), {}}; };
  return run_program(argc, argv, {.networks = {network}, .data = {{"stripes", open}}});
}
