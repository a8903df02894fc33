#pragma once
// The largest single allocation so far, in a test program that has allocation_watch.cpp, which replaces operator new.

#include <atomic>
#include <cstddef>

extern std::atomic<std::size_t> largest_allocation;
