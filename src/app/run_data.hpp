#pragma once
// The network and the data sets that --model and --data name: built in, read from files, or of a custom program.

#include "tutti/app/program.hpp"
#include "tutti/backend/tensor.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/data/open_data.hpp"

#include "run_config.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti {

// Names of extensions take precedence over built-in ones. A value with a slash, or that ends in .toml, is the path of
// a model file.
NetworkSpec choose_model(const RunConfig& config);

// Null if --data names no data set of an extension. Throws a usage error for options that only apply to files.
const CustomData* find_custom_data(const RunConfig& config);
// Throws an input error that names the data set if it has no samples, or has no labels though they are required.
DataPair open_custom(const CustomData& data, bool allow_unlabelled = false);

// Data sets are loaded once per host: one rank of each host reads them into shared memory.

// The bytes of the data sets, in memory of one process or shared by the ranks of a host.
struct LoadedBlock {
  std::vector<std::byte> own;
  Buffer shared;

  std::span<const std::byte> bytes() const;
};

// Calls load_data(request) on one rank per host. Throws the same error on all ranks, also if ranks of one host request
// different data. Collective.
LoadedBlock load_once(World& world, const DataRequest& request);

}  // namespace tutti
