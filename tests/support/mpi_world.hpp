#pragma once
// The world of a test on multiple ranks. tests/support/mpi_main.cpp creates it before the first test and closes it
// after the last. All ranks exit with the same status.

#include "tutti/comm/world.hpp"

namespace tutti {

World& test_world();

}  // namespace tutti
