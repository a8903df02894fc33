#pragma once
// trainer check: what a training with these options would meet, without training: everything that dooms it or slows it
// down, in one go, each with its remedy. Goes on after a finding as far as what follows still makes sense.

#include "tutti/base/error.hpp"
#include "tutti/comm/world.hpp"

#include "command_line.hpp"

namespace tutti {

// Rank 0 prints. answer_is_no: the run is doomed. Collective.
ExitStatus check_command(World& world, const Invocation& invocation);
// For ranks that could not find each other, and why: the first one says it, and checks what one rank can. Returns the
// process's exit status.
int check_alone(const Invocation& invocation, const Error& failure);

}  // namespace tutti
