#pragma once
// What the stand-in for CUDA throws where a real device would compute nonsense, hang or crash without a word. What CUDA
// itself reports is returned as its error codes instead.

#include <stdexcept>

namespace tutti::standin {

class Finding : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace tutti::standin
