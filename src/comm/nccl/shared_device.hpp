#pragma once
// NCCL refuses two ranks of one host on one GPU. With host names of their own it takes them for ranks of different
// hosts, which talk over loopback: slow, and enough for tests.

#include "tutti/comm/world.hpp"

namespace tutti::nccl {

// Sets the environment for that, but for what the user has set. Before the process's first call of NCCL, which reads it
// once. Throws a usage error where sums would never end.
void prepare_shared_device(const World& world);

}  // namespace tutti::nccl
