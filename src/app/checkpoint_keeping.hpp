#pragma once
// The checkpoints of one run: taken at step boundaries, saved beside training, told of, and accounted for at the end.

#include "tutti/base/log.hpp"
#include "tutti/checkpoint/checkpoint_writer.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/nn/network.hpp"

#include "run_config.hpp"
#include "run_control.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// States above this many bytes are saved in several files, by one rank of each of several hosts.
inline constexpr std::size_t kMostBytesPerFile = std::size_t{2} << 30;

// Generous: parameters, their two moments at most, and the texts.
std::size_t most_state_bytes(const Network& network);
// What this rank saves of states of so many bytes; most ranks, nothing. Collective.
std::optional<FileShare> file_share(World& world, std::size_t state_bytes,
                                    std::size_t most_bytes_per_file = kMostBytesPerFile);

class CheckpointKeeping {
 public:
  // Gets a JSON line for every attempt, before anything is said of it.
  using Record = std::function<void(const std::string& json)>;

  // Borrowed.
  CheckpointKeeping(World& world, const RunConfig& config, const CheckpointStore& store, std::optional<FileShare> share,
                    RunControl& control);

  // Training has stood still for the copy so long already.
  void take(TrainState state, double copy_seconds);
  // Of what has been saved since the last call: failures for people, all for the record.
  void tell(const Record& record);
  // Waits until the newest state is safe, and tells what the checkpoints cost. Throws a save error on all ranks when it
  // cannot be saved. Collective.
  void finish(const Record& record);

 private:
  struct Stall {
    std::int64_t step = 0;
    double seconds = 0;
  };

  void tell_of(const SaveReport& report, const Record& record);
  double stall_at(std::int64_t step) const;
  void tell_cost() const;

  World& world_;
  Log log_;
  RunControl& control_;
  std::string folder_;
  std::optional<CheckpointWriter> writer_;
  std::vector<Stall> stalls_;
  std::vector<double> good_saves_;  // seconds
  std::int64_t bytes_ = 0;          // of the last of them
  std::string last_failure_;
};

}  // namespace tutti
