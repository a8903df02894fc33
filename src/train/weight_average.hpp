#pragma once
// The average of weights and running statistics over the updates, as torch.optim.swa_utils.AveragedModel keeps it with
// use_buffers. Every rank has all of it.

#include "tutti/backend/backend.hpp"
#include "tutti/train/trainer_options.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti {

// The share of the new weights in the average after the run's update number `update`, counted from 1; 0: they are not
// averaged. `done` is the fraction of the planned steps that are done.
double share_in_average(const AverageOptions& options, std::int64_t update, double done);

class WeightAverage {
 public:
  // Of this block, which is borrowed.
  WeightAverage(const AverageOptions& options, Backend& backend, const Tensor& weights);

  // Asynchronous, as is all that follows. Starts again from the weights.
  void reset(Stream& stream) { backend_.copy(stream, values(), weights_); }
  // Averages the weights in with share_in_average(). Returns whether it has changed the weights.
  bool add(Stream& stream, double share);
  // Exchanges the average and the weights.
  void swap(Stream& stream);

  Tensor values() const { return values_.view(weights_.shape, ElementType::f32); }
  std::size_t bytes() const { return values_.bytes() + spare_.bytes(); }

 private:
  AverageOptions options_;
  Backend& backend_;
  Tensor weights_;
  Buffer values_;
  Buffer spare_;
};

}  // namespace tutti
