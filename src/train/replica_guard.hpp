#pragma once
// Proves now and then that all replicas are equal, and says what becomes of a run whose replicas are not: it ends, or
// goes back to the last state that was proven, unless the same fault comes again and again.

#include "tutti/train/run_observer.hpp"
#include "tutti/train/safeguards.hpp"

#include "kept_state.hpp"
#include "replica_proof.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

class ReplicaGuard {
 public:
  // Borrowed.
  ReplicaGuard(const TrainerParts& parts, const Safeguards& safeguards, Whereabouts& whereabouts, Replica& replica);

  bool is_due(std::int64_t step) const { return step % every_ == 0; }
  // Of the state after so many steps, or a later one, there is a proof.
  bool has_proven(std::int64_t step) const { return proven_ && *proven_ == step; }
  // Asked before each update of the weights; null: there is nothing to note.
  ReplicaProof* noting() { return notes_ ? &proof_ : nullptr; }

  // Compares what the ranks hold after so many steps; empty: it is equal, and kept where the run is to heal. The loss
  // sums and the progress are not. Collective. Waits.
  std::optional<DivergenceReport> look(std::int64_t step);

  // Whether proven states are kept.
  bool heals() const { return kept_.has_value(); }
  // Where the run is in the proven state, which is kept.
  void keep_position(const RunPosition& position) { kept_->position = position; }
  // The proven state is there again, on all ranks: where the run is in it. Throws on all of them when they differ in
  // it. Collective. Waits.
  const RunPosition& go_back();

  std::size_t memory_bytes() const { return kept_ ? kept_->bytes() : 0; }

 private:
  static constexpr int kMostInARow = 3;

  std::optional<Divergence> compare();
  // How often, with this one, the same tensor differed on the same ranks, and no proof came between.
  int times_in_a_row(const Divergence& found);

  Replica& replica_;
  std::vector<std::string> hosts_;
  std::int64_t every_;
  bool notes_;
  ReplicaProof proof_;
  std::optional<KeptState> kept_;  // where the run is to heal
  std::optional<std::int64_t> proven_;
  std::vector<int> suspects_;
  std::vector<std::string> suspected_;  // tensors that all incidents in a row have in common
  int in_a_row_ = 0;
};

}  // namespace tutti
