// Trains as the program does, with its stall watch, on data that one rank cannot read. A test checks that this failure
// ends the job and is not reported as a stall.

#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/train/trainer.hpp"

#include "commands.hpp"

#include <array>
#include <cstdlib>

namespace tutti {
namespace {

// A data set whose samples cannot be read from a given one on.
class TornData : public Dataset {
 public:
  TornData(std::int64_t samples, std::int64_t torn_from) : torn_from_(torn_from) {
    info_.name = "torn";
    info_.image = Shape{1, 4, 4};
    info_.classes = 2;
    info_.samples = samples;
  }
  const DatasetInfo& info() const override { return info_; }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    for (const std::int64_t sample : samples) {
      if (sample >= torn_from_) throw Error(ErrorSource::io, "sample 300 went up in smoke");
    }
    batch.images.assign(samples.size(), {pixels_.data(), info_.image});
    batch.labels.assign(samples.size(), 1);
  }
  std::size_t resident_bytes() const override { return pixels_.size(); }
  std::uint64_t digest() const override { return 0; }

 private:
  DatasetInfo info_;
  std::int64_t torn_from_;
  std::array<std::uint8_t, 16> pixels_{};
};

ExitStatus train_on_torn_data(World& world, int failing_rank) {
  constexpr std::int64_t kSamples = 600;
  const TornData data(kSamples, world.rank() == failing_rank ? 300 : kSamples);
  const auto backend = make_cpu_backend();
  const auto communicator = make_mpi_communicator(world, {.helper_thread = false});
  const Network network(built_in_model("linear"), data.info().image, data.info().classes);
  const TrainerOptions options{.batch_size = 30, .num_parts = world.size(), .shuffle = Shuffle::none};
  Trainer trainer({.backend = *backend, .communicator = *communicator, .network = network, .train = data}, options, {});
  RunObserver silent;
  trainer.run(silent);
  return ExitStatus::done;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  const int failing_rank = argc > 1 ? std::atoi(argv[1]) : 0;
  tutti::StallWatch watch(tutti::StallWatch::Signals::report_then_die);
  const auto world = tutti::make_mpi_world();
  return tutti::run_and_report_errors(*world, {.watch = &watch}, [&] {
    watch.begin(*world, {}, tutti::Log(world->rank(), world->host(), false));
    return tutti::train_on_torn_data(*world, failing_rank);
  });
}
