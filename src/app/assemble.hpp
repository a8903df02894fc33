#pragma once
// The one place that chooses implementations: which processor, which communicator, which data set and network a
// configuration means for this job.

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

// Everything a Trainer borrows, and what the banner and the run record say of it.
struct Assembly {
  RunConfig config;  // with parts, threads, exchange and normalize filled in
  Cores cores;
  ChosenProcessor processor;  // but for its backend, which is this one
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Communicator> communicator;
  bool exchange_has_core = false;  // to move on by, beside the compute; on GPUs it needs none
  LoadedBlock block;               // under the data sets
  DataPair data;
  std::unique_ptr<Network> network;
  TrainerOptions options;
  std::uint64_t data_digest = 0;

  TrainerContext parts() const;
  // That all ranks of this host keep busy.
  std::int64_t busy_cores(const World& world) const;
};

// What the host's cores and the parts make slow, and classes that nothing is learnt of. Collective.
Findings check_load(World& world, const Assembly& assembly);
// What a training of it wants to know its memory by; `share` is what this rank saves of a checkpoint.
EstimateRequest memory_request(const Assembly& assembly, const World& world, const std::optional<FileShare>& share);

// Of a configuration that starts anew. Throws alike on all ranks, also when they see different data. Collective.
Assembly assemble(World& world, const RunConfig& config, const Log& log);

// What a training is assembled from.
struct TrainingSources {
  const TrainState* checkpoint = nullptr;  // which it goes on from, and takes the choices of algorithms from
  const NetworkSpec* model = nullptr;      // null: leaves the network out
  bool samples_files = false;              // looks further into the data than a start does
};
// The same for a training, and for the check of one, which leaves out what cannot be made. Collective.
Assembly assemble(World& world, const RunConfig& config, const TrainingSources& sources, Obstacles& obstacles,
                  const Log& log);

// What a trained network is put to: the configuration's data or these images, in the form that it takes.
struct AskedData {
  const TrainState& state;           // the network's
  std::optional<TrainedOn> trained;  // where its checkpoint tells
  std::vector<std::string> images{};
  bool needs_labels = true;
  bool named = false;  // by --data of this call
};
// As assemble() does for a checkpoint. Throws an input error besides for labels that are needed and none of the
// network's. Collective.
Assembly assemble_for(World& world, const RunConfig& config, const AskedData& asked, const Log& log);

// What the configuration's words ask for; sets too large for this host's memory are read piece by piece.
DataRequest data_request(const RunConfig& config);
RecipeRequest recipe_request(const RunConfig& config);

// MPI when a launcher started this process, else a world of its own. Collective.
std::unique_ptr<World> make_world();

}  // namespace tutti
