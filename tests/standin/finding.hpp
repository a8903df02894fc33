#pragma once
// Thrown by the stand-in where a real device would compute garbage, hang or crash without an error. Errors that CUDA
// reports are returned as its error codes.

#include <stdexcept>

namespace tutti::standin {

class Finding : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace tutti::standin
