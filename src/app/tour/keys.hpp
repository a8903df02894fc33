#pragma once
// Waits for somebody who reads to have read.

#include "tutti/watch/whereabouts.hpp"

namespace tutti {

class Keys {
 public:
  // Waits for nobody unless this is wanted and there may be somebody: stdin and stdout are terminals, or a launcher
  // hands the keys of its own on. Borrowed; it is told that the rank is still there.
  Keys(bool wanted, Whereabouts& whereabouts);
  // Returns at the end of a line, and at once from the end of the input on.
  void await_enter();

 private:
  bool waits_;
  Whereabouts& whereabouts_;
};

}  // namespace tutti
