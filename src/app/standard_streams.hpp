#pragma once
// The descriptors 0, 1 and 2, which a program may be started without, and results that stdout does not take: printing
// never fails, so that no rank leaves the others alone, but is remembered, and the program ends with its status.

namespace tutti {

// Opens /dev/null in place of those that are closed, so that no file of ours gets their numbers; as stdout for reading,
// so that lost results are noticed. Remembers from now on what stdout does not take. The first thing a process does.
void open_standard_streams();
// Why something printed was lost: errno; 0: nothing was. As far as it was flushed.
int stdout_failure() noexcept;
// Flushes all that was printed, and throws a save error if any of it was lost.
void require_stdout();
// Whether stdout is a pipe that nobody reads any more.
bool stdout_is_abandoned() noexcept;

}  // namespace tutti
