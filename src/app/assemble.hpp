#pragma once
// The only place that chooses implementations: the processor, communicator, data set and network for a configuration.

#include "tutti/app/program.hpp"
#include "tutti/backend/tensor.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/data/trained_on.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/train/trainer.hpp"

#include "findings.hpp"
#include "processors.hpp"
#include "run_config.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

// What a start finds out once about the job.
struct JobFacts {
  std::vector<std::string> hosts;  // by rank
  Cores cores;                     // of this rank
  GpuFacts gpus;                   // likewise
};
// Collective.
JobFacts find_facts(World& world, Device device);

// The steps of assemble(), in order, for `trainer check`, which goes on with those that are still possible. Each throws
// the same error on all ranks. Collective.

// Fills in parts, threads and the size of buckets.
void resolve_parallelism(World& world, const Cores& cores, bool all_on_gpus, RunConfig& config);

struct RunData {
  Buffer block;  // the bytes that the data sets refer to
  DataPair data;
  std::uint64_t data_digest = 0;  // of the training set
};
// Loads the data that --data names once per host, into memory that its ranks share. Throws an error also if the ranks
// of a host request different data.
RunData open_run_data(World& world, const std::vector<std::string>& hosts, const RunConfig& config);

// The inputs of a training, or of the evaluation of a checkpoint on the data of its run or others, besides its
// configuration.
struct Sources {
  const NetworkSpec& model;
  const TrainState* checkpoint = nullptr;  // to resume or evaluate, and to take the choices of algorithms from
  bool evaluates = false;
  std::optional<TrainedOn> trained{};  // of an evaluation, whose data are converted to the form of these
};
// Resolves the options of the trainer, too, and --normalize.
std::unique_ptr<Network> make_network(World& world, const Cores& cores, const ChosenProcessor& processor,
                                      const DataPair& data, const Sources& sources, RunConfig& config);

// A run whose ranks are not connected yet.
struct PreparedRun : RunData {
  RunConfig config;  // with parts, threads, exchange, precision and normalize filled in
  Cores cores;
  ChosenProcessor processor;
  std::unique_ptr<Network> network;

  // The number of cores that the ranks of this host keep busy.
  std::int64_t busy_cores(const World& world) const;
};

// Reports ranks that have other options, networks or data than rank 0.
Findings check_agreement(World& world, const PreparedRun& run);

struct Communicators {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Communicator> norm_communicator;  // null, unless --batch-norm global needs it
  bool has_core_for_communication = false;          // a spare core for communication progress; on GPUs none is needed
};
Communicators connect(World& world, const PreparedRun& run, const Log& log);

// Everything that a Trainer borrows, and the values that the banner and the run record report.
struct Assembly : PreparedRun, Communicators {
  // `computing` is the backend, or passes its calls on to it.
  TrainerContext trainer_context(Backend& computing) const;
};

// All of these steps. Logs the notes of the data. Throws the same error on all ranks, also if they see different data.
// Collective.
Assembly assemble(World& world, const JobFacts& facts, const RunConfig& config, const Sources& sources, const Log& log);
// A new run.
Assembly assemble(World& world, const RunConfig& config, const Log& log);

// Uses MPI if a launcher started this process, else a world with one rank. Collective.
std::unique_ptr<World> make_world();

}  // namespace tutti
