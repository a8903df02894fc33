#pragma once
// A trainer on one rank of a world, with all that it borrows except the data.

#include "tutti/comm/communicator.hpp"

#include "train/training_run.hpp"

#include <memory>

namespace tutti {

struct RankRun {
  RankRun(World& world, const NetworkSpec& model, const DataPair& data, const TrainerOptions& options,
          RankStatus* rank_status = nullptr, const MpiOptions& mpi = {})
      : communicator(make_mpi_communicator(world, mpi)),
        network(model, data.train->info().image, data.train->info().classes),
        trainer({.backend = *backend,
                 .communicator = *communicator,
                 .network = network,
                 .train = *data.train,
                 .test = data.test.get(),
                 .rank_status = rank_status},
                options, {}) {}

  std::unique_ptr<Backend> backend = make_cpu_backend();
  std::unique_ptr<Communicator> communicator;
  Network network;
  Trainer trainer;
};

}  // namespace tutti
