#pragma once
// The exit statuses of the program; the README lists those in use. Only main ends a process.

namespace tutti {

enum class ExitStatus : int {
  done = 0,
  answer_is_no = 1,
  usage = 64,
  bad_input = 65,
  no_checkpoint = 66,
  internal = 70,
  cannot_save = 73,
  input_io = 74,
  stopped = 75,
  hang = 86,
  diverged = 87,
  not_finite = 88,
};

}  // namespace tutti
