#pragma once
// The data sets' bytes in memory once per host: one rank of each host reads them into memory that the others see.

#include "tutti/backend/tensor.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/data/open_data.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti {

// Owned by one process alone, or shared by the ranks of a host.
struct LoadedBlock {
  std::vector<std::byte> own;
  Buffer shared;

  std::span<const std::byte> bytes() const;
};

// What load_data(request) gives. Throws alike on all ranks, also when ranks of one host ask for different data, which
// they cannot have. Collective.
LoadedBlock load_once(World& world, const DataRequest& request);

}  // namespace tutti
