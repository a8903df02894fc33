#pragma once
// Signals to end that a process dies of, but not before a thread of its own has seen them. No handler runs, for the
// reason that compiled kernels of the CPU library keep their stack pointer elsewhere for a while.

#include "tutti/base/descriptor.hpp"

namespace tutti {

class LastSignals {
 public:
  // Blocks them in this thread and those that it starts. With `taken` false, does nothing.
  explicit LastSignals(bool taken);

  // Readable when one has come; -1: none is taken.
  int descriptor() const { return descriptor_.get(); }
  // The one that has come; 0: none. Without waiting.
  int take() const;

 private:
  Descriptor descriptor_;
};

}  // namespace tutti
