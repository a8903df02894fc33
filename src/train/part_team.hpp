#pragma once
// Plays the parts of one rank, several of them side by side: each player has its own activations, stream, gradients
// and sums, and, but for the first, a thread of its own that sleeps between its turns. The first player is the
// thread that calls. What comes out does not depend on the number of players.

#include "tutti/data/batch_loader.hpp"
#include "tutti/nn/part_context.hpp"
#include "tutti/watch/rank_status.hpp"

#include "part_sum.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti {

struct Player {
  std::size_t number = 0;
  Stream& stream;
  PartContext context;
  Buffer sums;         // LossSums of the parts it has played
  Buffer kept_sums;    // as they were before the last step played
  Buffer gradients{};  // of one part, unless it only ever plays the first
};

struct TeamRequest {
  const Network& network;
  NetworkWeights& weights;
  Backend& backend;
  Stream& stream;  // the calling thread's
  int players = 1;
  int threads = 1;  // of each player
  double label_smoothing = 0;
  std::function<void(double seconds)> after_part{};  // as TrainerOptions say
  RankStatus& rank_status;
};

// A rank's share of one step of the run.
struct TeamStep {
  const StepBatches& batches;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  bool measured = false;  // seconds_per_part() is wanted: work is waited for
};

class PartTeam {
 public:
  // All borrowed.
  explicit PartTeam(const TeamRequest& request);
  ~PartTeam();
  PartTeam(const PartTeam&) = delete;
  PartTeam& operator=(const PartTeam&) = delete;

  std::size_t size() const noexcept { return players_.size(); }
  // Prepares every player for batches of this many samples.
  void plan(std::int64_t samples, LayerMode mode);
  // To be called before the first play(): `total` (borrowed) gets the gradients of up to so many parts a step. At the
  // `stops`, ascending, the caller wants to be told that so many elements are ready.
  void collect_gradients(GradientTotal& total, std::int64_t parts, std::vector<std::int64_t> stops = {});

  // Runs `work` for every player at once and returns when all are done. Throws what the first to fail threw.
  void each(const std::function<void(Player&)>& work);

  // Told, in the calling thread, that elements [0, n) of the total hold the sum over the rank's parts, for work that
  // follows on its stream.
  using Ready = std::function<void(std::int64_t final_elements)>;
  // Forward, loss and backward of each batch; gradients added up in the order of the parts.
  void play(const TeamStep& step, const Ready& ready);

  // The sums are again what they were before the last step played.
  void take_back();
  // By player, how many of the losses in its sums were not finite: i64 [1] in the processor's memory.
  std::vector<Tensor> bad_losses() const;

  // Of the last step played, which was measured: without what others were told of it and did meanwhile; 0: there was no
  // sample in it.
  double seconds_per_part() const { return played_.empty() ? 0 : seconds_ / static_cast<double>(played_.size()); }

  // As if these were the gradients of the rank's only part.
  void take(const Tensor& gradients, const Ready& ready);

  // Told of what the first player does, and of signs of progress of all.
  RankStatus& rank_status() { return rank_status_; }
  // Of all players together. Waits.
  LossSums sums();
  void set_sums(const LossSums& sums);
  // Activations, and gradients beside the total.
  std::size_t memory_bytes() const;

 private:
  void follow(Player& player, const std::stop_token& stop);
  void carry_out(Player& player) noexcept;
  void play_share(Player& player, const TeamStep& step, const Ready& ready);
  // Whether the part leaves its gradients in the block of the total.
  bool plays_in_total(const Player& player, std::size_t part) const;
  Tensor gradients_for(const Player& player, std::size_t part) const;

  Backend& backend_;
  std::function<void(double seconds)> after_part_;
  RankStatus& rank_status_;
  std::vector<std::unique_ptr<Stream>> streams_;  // of all players but the first
  std::vector<std::unique_ptr<Player>> players_;
  GradientTotal* total_ = nullptr;
  std::vector<std::int64_t> stops_;
  std::unique_ptr<PartSum> sum_;
  std::vector<const Batch*> played_;  // of the step under way: those with samples
  double seconds_ = 0;                // that all of them took

  std::mutex mutex_;
  std::condition_variable_any called_;
  std::condition_variable done_;
  const std::function<void(Player&)>* work_ = nullptr;
  std::uint64_t calls_ = 0;
  std::size_t busy_ = 0;
  std::exception_ptr failure_;

  std::vector<std::jthread> threads_;  // the last member: stopped and joined before the others go
};

}  // namespace tutti
