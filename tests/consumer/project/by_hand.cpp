// The classes without the command line, for a custom main: mpirun -np 4 ./by_hand
#include "tutti/base/digest.hpp"
#include "tutti/data/dataset.hpp"
#include "tutti/train/trainer.hpp"

#include <cstdio>

using namespace tutti;

class Printer : public RunObserver {
 public:
  explicit Printer(bool prints) : prints_(prints) {}
  void on_epoch(const EpochReport& report) override {
    if (prints_) std::printf("%.4f %s\n", report.train.accuracy(), digest_text(report.weights_digest).c_str());
  }

 private:
  bool prints_;
};

// Images with one bright quadrant, whose number is the class.
constexpr int kSide = 8, kSamples = 512;

std::uint8_t pixel_of(int sample, int row, int column) {
  const int quarter = row / (kSide / 2) * 2 + column / (kSide / 2);
  return static_cast<std::uint8_t>(sample * 31 % 90 + (quarter == sample % 4 ? 60 : 0));
}

void train(World& world) {
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
  for (int i = 0; i < kSamples; ++i) labels.push_back(i % 4);
  for (int i = 0; i < kSamples * kSide * kSide; ++i) {
    images.push_back(pixel_of(i / (kSide * kSide), i / kSide % kSide, i % kSide));
  }
  const MemoryDataset data({.name = "quarters", .image = {1, kSide, kSide}, .classes = 4, .samples = kSamples}, images,
                           labels);
  const Network network({.name = "one-layer", .layers = {{"head", LinearSpec{.units = kUnitsFromClasses}}}},
                        data.info().image, data.info().classes);
  const auto backend = make_cpu_backend();
  const auto communicator = world.size() == 1 ? make_solo_communicator() : make_mpi_communicator(world, {});
  TrainerOptions options{.batch_size = 64, .num_parts = 4, .exchange = {.kind = Exchange::exact}, .epochs = 5};
  options.learning_rate.base = 0.1;
  Trainer trainer({.backend = *backend, .communicator = *communicator, .network = network, .train = data}, options, {});
  Printer printer(world.rank() == 0);
  trainer.run(printer);
  world.barrier();  // an early destruction of the communicator could abort the last sum of other ranks
}

int main() {
  const auto world = started_by_launcher() ? make_mpi_world() : make_solo_world();
  train(*world);
  world->close();
}
