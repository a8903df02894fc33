#pragma once
// The commands that evaluate, inspect and compare what a training leaves, and those that show data and the tour. All
// are collective and print on rank 0's stdout.

#include "tutti/base/error.hpp"
#include "tutti/comm/world.hpp"

#include "command_line.hpp"
#include "program.hpp"

namespace tutti {

// Evaluates a checkpoint on a data set. The network, image size and normalisation are the checkpoint's.
ExitStatus eval_command(World& world, const Invocation& invocation, const EndRecord& record);
// Classifies images with a checkpoint, with the same rows on any number of ranks.
ExitStatus predict_command(World& world, const Invocation& invocation, const EndRecord& record);

// Rank 0 works and the others wait for it:
// Shows what a checkpoint holds, after verifying it, and which of a folder's checkpoints are good.
ExitStatus inspect_command(World& world, const Invocation& invocation);
// Compares two runs or checkpoints. The answer is no if they differ.
ExitStatus diff_command(World& world, const Invocation& invocation);
// Writes any data set as one HDF5 file, describes one, and draws what the network gets of one.
ExitStatus data_convert(World& world, const Invocation& invocation);
ExitStatus data_info(World& world, const Invocation& invocation);
ExitStatus data_show(World& world, const Invocation& invocation);

// Shows one data-parallel step, written by hand with the public classes. The answer is no if values differ that must be
// equal.
ExitStatus tour_command(World& world, const Invocation& invocation, const EndRecord& record);

}  // namespace tutti
