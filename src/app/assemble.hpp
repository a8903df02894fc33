#pragma once
// The only place that chooses implementations: the processor, communicator, data set and network for a configuration.

#include "tutti/app/program.hpp"
#include "tutti/backend/tensor.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/data/adapted_dataset.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/train/trainer.hpp"

#include "preflight/findings.hpp"
#include "processors.hpp"
#include "run_config.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace tutti {

// The network and the data sets that --model and --data name: built in, read from files, or of a custom program.

// Whether the value of --model is the path of a model file: it has a slash, or ends in .toml.
bool is_model_file(const std::string& model);
// Names of extensions take precedence over built-in ones.
NetworkSpec choose_model(const RunConfig& config);

// Null if --data names no data set of an extension. Throws a usage error for options that only apply to files.
const CustomData* find_custom_data(const RunConfig& config);
// Throws an input error that names the data set if it has no samples, or has no labels though they are required.
DataPair open_custom(const CustomData& data, bool allow_unlabelled = false);

// Calls load_data on one rank per host, into memory that its ranks share. Throws the same error on
// all ranks, also if ranks of one host request different data. Collective.
Buffer load_once(World& world, const DataRequest& request);

// Everything that a Trainer borrows, and the values that the banner and the run record report.
struct Assembly {
  RunConfig config;  // with parts, threads, exchange, precision and normalize filled in
  Cores cores;
  ChosenProcessor processor;  // its backend has been moved to the next member
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Communicator> norm_communicator;  // null, unless --batch-norm global needs it
  bool has_core_for_communication = false;          // a spare core for communication progress; on GPUs none is needed
  Buffer block;                                     // the bytes that the data sets refer to
  DataPair data;
  std::unique_ptr<Network> network;
  std::uint64_t data_digest = 0;

  // `computing` is the backend, or passes its calls on to it.
  TrainerContext trainer_context(Backend& computing) const;
  // The number of cores that the ranks of this host keep busy.
  std::int64_t busy_cores(const World& world) const;
};

// Assembles a new run. Throws the same error on all ranks, also if they see different data. Collective.
Assembly assemble(World& world, const RunConfig& config, const Log& log);

// The inputs of a training, or of the evaluation of a checkpoint on the data of its run or others, besides its
// configuration.
struct Sources {
  const TrainState* checkpoint = nullptr;  // to resume or evaluate, and to take the choices of algorithms from
  const NetworkSpec* model = nullptr;      // null: the network is left out
  bool evaluates = false;
  std::optional<TrainedOn> trained{};  // of an evaluation, whose data are converted to the form of these
};
// The same for all commands; check leaves out the members that cannot be made. Collective.
Assembly assemble(World& world, const RunConfig& config, const Sources& sources, PreflightReporter& preflight,
                  const Log& log);

// Uses MPI if a launcher started this process, else a world with one rank. Collective.
std::unique_ptr<World> make_world();

}  // namespace tutti
