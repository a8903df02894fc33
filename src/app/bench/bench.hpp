#pragma once
// trainer bench: measurements inside one launch. Where rank counts are measured, ranks that one leaves out sleep.

#include "tutti/base/exit_status.hpp"
#include "tutti/base/quartiles.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/train/trainer.hpp"

#include "command_line.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti {

// Time and bus bandwidth of sums over the ranks by message size, ours beside the MPI library's own. Collective.
ExitStatus bench_allreduce(World& world, const Invocation& invocation);
// What saving costs, beside training, by itself and against a plain write of as many bytes; and loading. Collective.
ExitStatus bench_checkpoint(World& world, const Invocation& invocation);
// Time of exchange and update, bytes sent and memory held, by how gradients meet and by rank count. Collective.
ExitStatus bench_exchange(World& world, const Invocation& invocation);
// Images/s of preparing batches by the number of readers, of the compute, and of both at once: what the readers take
// from the compute. Collective.
ExitStatus bench_input(World& world, const Invocation& invocation);
// Time per step, images/s and efficiency, strong and weak, by rank count. Collective.
ExitStatus bench_scaling(World& world, const Invocation& invocation);
// Time per step, images/s, memory and start-up of a training on all ranks, the slowest counting. Collective.
ExitStatus bench_step(World& world, const Invocation& invocation);

// Work on the ranks that say so, as a world of their own, while the others sleep. An error that the working ranks share
// is raised on all; one that a rank met alone ends the job. Collective.
void on_ranks(World& world, bool works, const std::function<void(World& working)>& work);
void on_first_ranks(World& world, int ranks, const std::function<void(World& working)>& work);

// The user's run with data of our own unless others were asked for, and no other end than these steps.
RunConfig config_for_steps(const Invocation& invocation, std::int64_t steps);
// The steps to time on this processor: several at once where they are enqueued, so that none waits for its end.
TimedSteps steps_for(const Backend& backend, TimedSteps steps);
// Seconds of a step, which `step` has the trainer do, after `warmup` others: one figure for each `at_once` steps, as
// the slowest rank saw it. Collective.
std::vector<double> time_steps(World& world, Trainer& trainer, const TimedSteps& steps,
                               const std::function<void()>& step);

struct TimedSum {
  std::int64_t bytes = 0;
  double seconds = 0;
};

// Where sums are made, and by whom.
struct Summing {
  Backend& backend;
  Communicator& communicator;
};
// What an all-reduce of so many bytes of f32, 4 at least, takes, as the slowest rank saw it: medians. Collective.
std::vector<TimedSum> time_all_reduce(World& world, const Summing& summing, const std::vector<std::int64_t>& bytes,
                                      std::int64_t repeats);

// Writes a benchmark's JSON by rank 0 where the user asked for it. Collective.
void write_bench_json(World& world, const std::string& path, const std::string& json);

}  // namespace tutti
