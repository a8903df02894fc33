#pragma once
// The sum of the gradients of one rank's parts, made while these are still being played, in any number of threads:
// each element is added in the order of the parts, so that its bits do not depend on who plays what and when.

#include "gradient_total.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

namespace tutti {

class PartSum {
 public:
  // Borrowed. Parts that are all played on one stream are added in its order, and nobody waits for it.
  enum class Streams { one, several };
  PartSum(GradientTotal& total, Streams streams);

  // Starts the sum of so many parts, one or more. Nobody else may be here.
  void begin(std::size_t parts);
  // Gradients [0, final_elements) of this part are final: adds of them what the part before allows by now. Work on
  // the stream, one thread per part.
  void add(Stream& stream, const PartGradients& part, std::int64_t final_elements);
  // Adds the rest of a part whose gradients are all final. Sleeps until the parts before have been added.
  void finish(Stream& stream, const PartGradients& part);

  // Elements [0, n) of the total hold the sum of all parts.
  std::int64_t complete();
  // Sleeps until they are more than `known`.
  std::int64_t await_more_than(std::int64_t known);

  // Throws `failure` at everyone who sleeps here or would.
  void abandon(std::exception_ptr failure);

 private:
  GradientTotal& total_;
  Streams streams_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> added_;  // by part: so many elements
  std::exception_ptr failure_;
};

}  // namespace tutti
