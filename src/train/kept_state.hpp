#pragma once
// A copy of all that a step changes on this rank, beside it in the processor's memory, and where the run was: what it
// can go back to.

#include "tutti/checkpoint/train_state.hpp"

#include "replica.hpp"

#include <cstddef>
#include <vector>

namespace tutti {

struct RunPosition {
  TrainProgress progress;
  LossSums sums;    // of this rank's parts
  LossSums logged;  // as Trainer::Run has it
};

class KeptState {
 public:
  // Borrowed.
  KeptState(Backend& backend, Replica& replica);

  // All asynchronous.
  void keep();
  void bring_back();

  RunPosition position;

  std::size_t bytes() const;

 private:
  Backend& backend_;
  Replica& replica_;
  std::vector<Tensor> blocks_;
  std::vector<Buffer> copies_;
  std::vector<NamedArray> exchange_;
};

}  // namespace tutti
