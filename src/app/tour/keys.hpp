#pragma once
// Asks somebody who reads whether to go on.

#include "tutti/watch/whereabouts.hpp"

namespace tutti {

class Keys {
 public:
  // Asks nobody unless this is wanted and there may be somebody: stdin and stdout are terminals, or a launcher hands
  // the keys of its own on. Borrowed; it is told that the rank is still there.
  Keys(bool wanted, Whereabouts& whereabouts);
  bool asks() const { return asks_; }
  // Prints a prompt and waits for the end of a line. False after a q, after SIGINT, and where the keyboard is gone;
  // input that ends without anybody having been there is asked for no more.
  bool go_on();

 private:
  enum class Input { line, quit, end, interrupt };
  Input read_line();

  bool asks_;
  bool is_somebody_there_;
  Whereabouts& whereabouts_;
};

}  // namespace tutti
