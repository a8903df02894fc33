#pragma once
// What threads that wait for signals to end share: which of them the process was told to ignore, and to die of one.

namespace tutti {

bool is_ignored(int signal);

// With the signal's usual action, whatever is blocked elsewhere.
[[noreturn]] void end_process_by(int signal);

}  // namespace tutti
