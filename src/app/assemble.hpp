#pragma once
// The only place that chooses implementations: the processor, communicator, data set and network for a configuration.

#include "tutti/base/log.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/data/fitted_dataset.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/train/trainer.hpp"

#include "preflight/findings.hpp"
#include "preflight/memory.hpp"
#include "processors.hpp"
#include "run_config.hpp"
#include "run_data.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// Everything that a Trainer borrows, and the values that the banner and the run record report.
struct Assembly {
  RunConfig config;  // with parts, threads, exchange, precision and normalize filled in
  Cores cores;
  ChosenProcessor processor;  // its backend has been moved to the next member
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Communicator> communicator;
  bool has_core_for_communication = false;  // a spare core for communication progress; on GPUs none is needed
  LoadedBlock block;                        // the bytes that the data sets refer to
  DataPair data;
  std::unique_ptr<Network> network;
  TrainerOptions options;
  std::uint64_t data_digest = 0;

  TrainerContext trainer_context() const;
  // The number of cores that the ranks of this host keep busy.
  std::int64_t busy_cores(const World& world) const;
};

// Warns of too few cores, unsuitable parts and learning rates, and classes without samples. Collective.
Findings check_load(World& world, const Assembly& assembly);
// The inputs of the memory estimate for a training; `share` is the share of a checkpoint that this rank saves.
EstimateRequest memory_request(const Assembly& assembly, const World& world, const std::optional<FileShard>& share);

// Assembles a new run. Throws the same error on all ranks, also if they see different data. Collective.
Assembly assemble(World& world, const RunConfig& config, const Log& log);

// The inputs from which a training is assembled.
struct TrainingSources {
  const TrainState* checkpoint = nullptr;  // to resume from, and to take the choices of algorithms from
  const NetworkSpec* model = nullptr;      // null: the network is left out
  bool decode_sample = false;              // decode a sample of the images, for which a start takes no time
};
// The same for train and check; check leaves out the members that cannot be made. Collective.
Assembly assemble(World& world, const RunConfig& config, const TrainingSources& sources, PreflightErrors& preflight,
                  const Log& log);

// The data on which a trained network is evaluated: those of the configuration, or images. They are converted to the
// form of its training data.
struct EvaluationData {
  const TrainState& state;           // of the network
  std::optional<TrainedOn> trained;  // empty if the checkpoint does not store it
  std::vector<std::string> images{};
  bool needs_labels = true;
  bool data_was_given = false;  // the command line has --data
};
// Assembles the evaluation of a checkpoint. Throws an input error if labels are needed and the network has no such
// classes. Collective.
Assembly assemble_for(World& world, const RunConfig& config, const EvaluationData& evaluation, const Log& log);

// Translates the configuration. Data sets that are too large for this host's memory are read lazily.
DataRequest data_request(const RunConfig& config);
RecipeRequest recipe_request(const RunConfig& config);

// Uses MPI if a launcher started this process, else a world with one rank. Collective.
std::unique_ptr<World> make_world();

}  // namespace tutti
