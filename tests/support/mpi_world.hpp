#pragma once
// The world of a test that runs on several ranks. tests/support/mpi_main.cpp makes it before the first test
// and closes it after the last, with one verdict for all ranks.

#include "tutti/comm/world.hpp"

namespace tutti {

World& test_world();

}  // namespace tutti
