#pragma once
// A checkpoint's network, put to data: what eval and predict have in common. Network, image size and normalisation are
// the checkpoint's; the data may be other.

#include "tutti/base/log.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/train/sample_scores.hpp"
#include "tutti/watch/rank_status.hpp"

#include "abandon_at_end.hpp"
#include "assemble.hpp"
#include "command_line.hpp"
#include "program.hpp"

#include <functional>
#include <string>
#include <vector>

namespace tutti {

struct ScoringRequest {
  std::string checkpoint;             // path of the file, or of a folder of such
  std::vector<std::string> images{};  // image files and folders; empty: --data, or else the checkpoint's
  bool needs_labels = true;
};

class Scoring {
 public:
  // Collective, as is all else.
  Scoring(World& world, const Invocation& invocation, const ScoringRequest& request, const EndRecord& record);

  const LoadedCheckpoint& checkpoint() const { return loaded_; }
  const DataPair& data() const { return assembly_.data; }
  const RunConfig& config() const { return assembly_.config; }
  // Whether the training set is the one that the network was trained on.
  bool is_of_run() const { return assembly_.data_digest == loaded_.state.data_digest; }
  // Throws when a loss is not finite.
  LossSums evaluate(const Dataset& data);
  // Likewise; rank 0 is given the scores of every sample besides.
  LossSums evaluate(const Dataset& data, const std::function<void(const ChunkScores&)>& receive);

 private:
  LossSums run(const Dataset& data, const ScoreOutlet* outlet);

  World& world_;
  Log log_;
  LoadedCheckpoint loaded_;
  Assembly assembly_;
  AbandonAtEnd abandoning_;
  RankStatus rank_status_;
};

// What each class is called where results are told: by its number where the data name none.
std::vector<std::string> told_class_names(const DatasetInfo& data);

// "test loss 0.0163, test acc 0.9948, 4000 images", of the set of that name.
std::string evaluation_line(const std::string& set, const LossSums& sums);

}  // namespace tutti
