#pragma once
// Where the time of one step went on one rank, in seconds, and how its compute goes on layer by layer.

#include <cstdint>
#include <vector>

namespace tutti {

struct StepTimes {
  // Compute until so many elements of the gradients were final; the first has the forward pass in it.
  struct Stretch {
    double seconds = 0;
    std::int64_t final_elements = 0;
  };

  double input = 0;              // waiting for the batch
  std::vector<Stretch> compute;  // of this rank's parts, in the order of the backward pass
  double driving = 0;            // moving the exchange along between them
  double waiting = 0;            // for the exchange afterwards, and for weights that others have updated
  double update = 0;             // of what this rank owns

  double compute_seconds() const {
    double seconds = 0;
    for (const Stretch& stretch : compute) seconds += stretch.seconds;
    return seconds;
  }
  double exchange() const { return driving + waiting; }
  double total() const { return input + compute_seconds() + exchange() + update; }
};

}  // namespace tutti
