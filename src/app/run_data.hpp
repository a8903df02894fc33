#pragma once
// The network and the data sets that --model and --data name: built in, read from files, or the program's own.

#include "tutti/app/program.hpp"
#include "tutti/backend/tensor.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/data/open_data.hpp"

#include "run_config.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti {

// Own names go before built-in ones; a word with a slash, or that ends in .toml, is the path of a model file.
NetworkSpec choose_model(const RunConfig& config);

// Null where --data names no set of the program's own. Throws a usage error for options about sets that are read.
const OwnData* find_own_data(const RunConfig& config);
// Throws an input error that names the set when it holds no samples, or has no labels where they are wanted.
DataPair open_own(const OwnData& data, bool unlabelled_too = false);

// The data sets' bytes in memory once per host: one rank of each host reads them into memory that the others see.

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
