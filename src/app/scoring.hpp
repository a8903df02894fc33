#pragma once
// Evaluates the network of a checkpoint on data, for eval and predict. Network, image size and normalization are those
// of the checkpoint; the data may be others.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/train/evaluation.hpp"
#include "tutti/watch/rank_status.hpp"

#include "assemble.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "processors.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tutti {

class Scoring {
 public:
  // The data are the images that the invocation names, --data, or the checkpoint's. Collective, as is evaluate().
  Scoring(World& world, const Invocation& invocation, bool needs_labels, const CommandContext& context);

  const LoadedCheckpoint& checkpoint() const { return loaded_; }
  const DataPair& data() const { return assembly_.data; }
  const RunConfig& config() const { return assembly_.config; }
  // Whether the training set is the one that the network was trained on.
  bool is_of_run() const { return assembly_.data_digest == loaded_.state.data_digest; }
  // On rank 0, passes the scores of every sample to `receive`, if any. Throws if a loss or an output is not finite.
  using Receive = std::function<void(const ChunkScores&)>;
  LossSums evaluate(const Dataset& data, const Receive& receive = {});

 private:
  World& world_;
  Log log_;
  LoadedCheckpoint loaded_;
  Assembly assembly_;
  AbortCollectivesOnExit abort_on_exit_;
  RankStatus rank_status_;
};

// A line about images of this data set that the network of a checkpoint was trained on, by their digest or names; empty
// if none are known. Reads the names of the run's own data where the checkpoint says that they are.
std::string known_images_text(const LoadedCheckpoint& loaded, const Dataset& data);

struct RankedClass {
  std::size_t number = 0;
  double probability = 0;
};
// The `count` most probable classes of a sample. Ties go to the lower number.
std::vector<RankedClass> best_classes(const ChunkScores& scores, std::size_t sample, std::size_t count);

// The name of each class; its number if the data have no name for it.
std::vector<std::string> shown_class_names(const DatasetInfo& data);

// "test loss 0.0163, test acc 0.9948, 4000 images" for the set "test".
std::string evaluation_line(const std::string& set, const LossSums& sums);

}  // namespace tutti
